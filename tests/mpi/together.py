"""For tests whose ranks are processes: what they are compared with, and how they tell each other."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

# On every rank, although only rank 0 computes on threads and checks: hypothesis draws constants that it finds
# in the modules that are loaded, and draws otherwise where they are not the same.
import ringcore_numpy  # noqa: F401
import ringcore_threads  # noqa: F401

import ringcore as rc
from ringcore.launcher import launched
from ringcore.testing import oracle  # noqa: F401

launch = launched()
P = launch.size if launch is not None else 1
"""How many ranks there are, known before MPI is there."""

Bits = tuple[str, tuple[int, ...], bytes]

several = pytest.mark.skipif(P == 1, reason="one rank has nobody to differ from")


def gathered(ring: rc.Ring, value: Any) -> list[Any]:
    """Everybody's value, on every rank. Collective."""
    return [pickle.loads(held) for held in ring.transport.allgather_bytes(pickle.dumps(value), ring.timeout)]


def bits(x: Any) -> Bits | None:
    """Dtype, shape and bytes: equal for the same NaN, different for 0.0 and -0.0."""
    return None if x is None else (str(x.dtype), tuple(x.shape), np.ascontiguousarray(x).tobytes())


def same_as_threads(
    ring: rc.Ring, body: Callable[[rc.Ring], Iterable[Any]], numpy: Callable[[Any], Any] = np.asarray
) -> list[list[Any]] | None:
    """Run ``body(ring)``, which returns arrays, on this ring and on as many threads: the bits must be equal.

    Returns on rank 0 the arrays of every rank, as ``numpy`` makes them; None on the others. Collective.
    """

    def on_rank(ring: rc.Ring) -> list[Any]:
        return [None if x is None else numpy(x) for x in body(ring)]

    everybody = gathered(ring, on_rank(ring))
    if ring.rank != 0:
        return None
    threads = rc.run_ranks(ring.size, on_rank, timeout=30.0)
    for rank, (here, there) in enumerate(zip(everybody, threads, strict=True)):
        for place, (x, y) in enumerate(zip(here, there, strict=True)):
            assert bits(x) == bits(y), f"array {place} of rank {rank} of {ring.size} must be as on threads"
    return everybody
