"""What is computed: a shape, a mask, a direction, and the arrays that everybody gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FULL, CAUSAL = "full", "causal"


@dataclass(frozen=True)
class Case:
    """One self-attention: H heads of S tokens, D wide, float32."""

    length: int
    heads: int
    dim: int
    mask: str
    backward: bool

    @property
    def direction(self) -> str:
        return "forward+backward" if self.backward else "forward"

    @property
    def scores(self) -> int:
        """Query-key pairs that the mask lets through, over all heads."""
        pairs = self.length * (self.length + 1) // 2 if self.mask == CAUSAL else self.length**2
        return self.heads * pairs

    @property
    def flops(self) -> int:
        """Useful ones: two products forward, five more backward (the scores again, dv, dp, dq, dk)."""
        return 2 * self.dim * self.scores * (7 if self.backward else 2)

    def __str__(self) -> str:
        return f"S={self.length:,} D={self.dim} {self.mask} {self.direction}"


@dataclass(frozen=True)
class Inputs:
    """Arrays (H, S, D) in float32, the cotangent of the output among them."""

    q: Array
    k: Array
    v: Array
    dout: Array

    def __iter__(self) -> Any:
        return iter((self.q, self.k, self.v, self.dout))


def inputs(case: Case) -> Inputs:
    """Standard normal numbers, the same for every mask and direction."""
    rng = np.random.default_rng([case.length, case.heads, case.dim])
    shape = (case.heads, case.length, case.dim)
    return Inputs(*(rng.standard_normal(shape, dtype=np.float32) for _ in range(4)))


def cases(lengths: list[int], heads: int = 4) -> list[Case]:
    """All of them, cheap before dear; a full case stands next to its causal one."""
    return [
        Case(length, heads, dim, mask, backward)
        for length in sorted(lengths)
        for dim in (64, 128)
        for backward in (False, True)
        for mask in (FULL, CAUSAL)
    ]
