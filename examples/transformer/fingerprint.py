"""What lets runs on different numbers of ranks be compared, and the ranks of one run with each other."""

from __future__ import annotations

import hashlib

import numpy as np
from weights import Weights

import ringcore as rc


def norms(weights: Weights) -> dict[str, float]:
    """The Euclidean norm of every array, in float64: equal on any number of ranks up to rounding."""
    return {name: float(np.linalg.norm(array.astype(np.float64))) for name, array in weights.named()}


def digest(weights: Weights) -> int:
    """48 bits of a hash: equal on all ranks of a run if their weights are the same bits."""
    return int.from_bytes(hashlib.sha256(weights.flat.tobytes()).digest()[:6], "big")


def gathered(ring: rc.Ring, number: int) -> list[int]:
    """Every rank's number, on every rank. Collective."""
    numbers = np.zeros(ring.size, np.int64)
    numbers[ring.rank] = number
    return ring.allreduce(numbers).tolist()  # type: ignore[no-any-return]
