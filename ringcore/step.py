"""One q-shard x k-shard step: what a kernel must know about it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from ringcore import intervals
from ringcore.intervals import Intervals
from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.meter import Meter
from ringcore.protocols import Array

_ROWS_LOWERED_AT_ONCE = 1 << 16  # bounds the temporaries of a deep mask expression


class Kind(Enum):
    """How much of a tile is visible."""

    EMPTY = "nothing: skip it"
    PARTIAL = "some: mask it"
    FULL = "all: no masking"


@dataclass(frozen=True)
class Step:
    """One step of the ring, as kernels see it: local indices only, never a stride or a rank.

    Attributes
    ----------
    lo, hi : array of int, shape (n, \\*lead, L_q)
        Visible keys of each query as sorted disjoint intervals [lo, hi) of local indices of this
        k-shard; NumPy where the rank is a number, traced arrays where it is traced. ``lead`` is () or
        broadcasts to (\\*B, H).
    q_pos, k_pos : array of int, shape (L_q,) and (L_k,)
        Global positions of the rows and columns.
    scale : float
        Scores are ``scale * (q @ k^T)``.
    dense : tuple of boolean arrays, each (\\*B|1, H|1, L_q, S_k)
        Further masks by ``&``, this q-shard's rows and all global columns.
    traced : bool
        The intervals are traced: nothing can be skipped by looking at them.
    meter : Meter
        Kernels report here what they have computed.
    """

    lo: Array
    hi: Array
    q_pos: Array
    k_pos: Array
    scale: float
    dense: tuple[Array, ...] = ()
    traced: bool = False
    meter: Meter = field(default_factory=Meter)

    def kind(self, q0: int, q1: int, k0: int, k1: int) -> Kind:
        """Class of the tile of rows q0..q1 and columns k0..k1 (not traced; dense masks: PARTIAL at best)."""
        lo, hi = self.lo[..., q0:q1], self.hi[..., q0:q1]
        seen = np.clip(np.minimum(hi, k1) - np.maximum(lo, k0), 0, None).sum(axis=0)
        if not seen.any():
            return Kind.EMPTY
        return Kind.FULL if not self.dense and (seen == k1 - k0).all() else Kind.PARTIAL

    def tiles(self, q0: int, q1: int, width: int) -> Iterator[tuple[int, int, Kind]]:
        """The tiles (k0, k1, kind) of rows q0..q1 that are not EMPTY, in order of keys.

        Costs a look at the rows and O(1) for each tile that is not on an edge of the mask.
        """
        n_keys = self.k_pos.shape[0]
        if self.traced:
            for k0 in range(0, n_keys, width):
                yield k0, min(k0 + width, n_keys), Kind.PARTIAL
            return
        lo, hi = self.lo[..., q0:q1], self.hi[..., q0:q1]
        used = lo < hi
        if not used.any():
            return
        first, last = int(lo[used].min()), int(hi[used].max())
        rows = tuple(range(1, lo.ndim))
        common_lo, common_hi = lo.max(axis=rows), hi.min(axis=rows)  # what every row sees of each slot
        for k0 in range(first // width * width, last, width):
            k1 = min(k0 + width, n_keys)
            if not self.dense and np.any((common_lo <= k0) & (common_hi >= k1)):
                yield k0, k1, Kind.FULL
                continue
            kind = self.kind(q0, q1, k0, k1)
            if kind is not Kind.EMPTY:
                yield k0, k1, kind

    def visible(self, xp: Array, q0: int, q1: int, k0: int, k1: int, device: object = None) -> Array:
        """Boolean mask of a tile on a device, shape (\\*lead, q1 - q0, k1 - k0)."""

        def put(x: Array) -> Array:
            return x if self.traced else xp.asarray(x, device=device)

        # A traced step counts in the dtype of its intervals, an eager one in the library's own for integers.
        column = xp.arange(k0, k1, dtype=self.lo.dtype) if self.traced else put(np.arange(k0, k1))
        seen = None
        for slot in range(self.lo.shape[0]):
            lo = put(self.lo[slot, ..., q0:q1])[..., None]
            hi = put(self.hi[slot, ..., q0:q1])[..., None]
            inside = (column >= lo) & (column < hi)
            seen = inside if seen is None else seen | inside
        for array in self.dense:
            seen = seen & xp.take(array[..., q0:q1, :], put(self.k_pos[k0:k1]), axis=-1)
        return seen

    def only(self, batch: tuple[int, ...], head: slice) -> Step:
        """The same step for one batch row and some query heads: lead () or (heads,)."""

        def pick(x: Array, at: int) -> Array:
            """Index the axes of x from ``at`` on that stand for (\\*B, H), of length 1 or full."""
            axes = x.ndim - at - (1 if at else 2)
            if axes <= 0:
                return x
            everything: list[int | slice] = [*batch, head]
            index = everything[len(everything) - axes :]
            where: list[int | slice] = []
            for axis, i in enumerate(index):
                whole: int | slice = slice(None) if isinstance(i, slice) else 0
                where.append(whole if x.shape[at + axis] == 1 else i)
            return x[(slice(None),) * at + tuple(where)]

        return replace(
            self, lo=pick(self.lo, 1), hi=pick(self.hi, 1), dense=tuple(pick(d, 0) for d in self.dense)
        )


def lower(mask: Mask, q_pos: np.ndarray, S_k: int) -> Intervals:
    """A mask's intervals in global key positions for these queries, unused slots dropped (NumPy)."""
    pieces = [
        intervals.compact(mask.lower(np, q_pos[at : at + _ROWS_LOWERED_AT_ONCE], S_k))
        for at in range(0, max(1, q_pos.shape[0]), _ROWS_LOWERED_AT_ONCE)
    ]
    slots = max(piece.lo.shape[0] for piece in pieces)

    def joined(sides: list[np.ndarray]) -> np.ndarray:
        filled = [
            np.concatenate([x, np.full((slots - x.shape[0], *x.shape[1:]), S_k, x.dtype)]) for x in sides
        ]
        return np.concatenate(filled, axis=-1)

    return Intervals(joined([p.lo for p in pieces]), joined([p.hi for p in pieces]))


def needed(lowered: Intervals, k_layout: Layout) -> np.ndarray:
    """Which ranks' keys these queries see: one row of who needs what, bool (P,)."""
    seen = intervals.hull(lowered)
    return k_layout.holders(seen.lo, seen.hi)


def local_step(
    lowered: Intervals,
    q_pos: np.ndarray,
    k_layout: Layout,
    k_rank: int,
    scale: float,
    dense: tuple[Array, ...],
    meter: Meter,
) -> Step:
    """The step of these queries against the keys of one rank.

    Positions are strictly increasing in every layout, so an interval of global positions is an
    interval of local indices: `Layout.below` gives its ends.
    """
    return Step(
        lo=k_layout.below(k_rank, lowered.lo),
        hi=k_layout.below(k_rank, lowered.hi),
        q_pos=q_pos,
        k_pos=k_layout.positions(k_rank),
        scale=scale,
        dense=dense,
        meter=meter,
    )


def default_scale(D: int) -> float:
    """1 / sqrt(D), the scale of A. Vaswani et al., *Attention Is All You Need*, 2017."""
    return 1.0 / math.sqrt(D)
