"""What is visible in a tile, from the intervals of its rows (`ringcore.step.Step`): (n, L_q), local keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringcore_numpy.compiled.options import part_of_kernels

Array = Any


@part_of_kernels
def edges_of(lo: Array, hi: Array, q0: int, q1: int, edges: Array) -> None:
    """For each slot of rows q0..q1: some row sees keys edges[0] to [1], every row sees [2] to [3]."""
    for slot in range(lo.shape[0]):
        some_lo, some_hi, all_lo, all_hi = np.iinfo(np.int64).max, 0, 0, np.iinfo(np.int64).max
        for i in range(q0, q1):
            a, b = lo[slot, i], hi[slot, i]
            all_lo, all_hi = max(all_lo, a), min(all_hi, b)
            if a < b:
                some_lo, some_hi = min(some_lo, a), max(some_hi, b)
        edges[0, slot], edges[1, slot], edges[2, slot], edges[3, slot] = some_lo, some_hi, all_lo, all_hi


@part_of_kernels
def meets(edges: Array, k0: int, k1: int) -> bool:
    """Whether any of the rows may see any of the keys k0..k1."""
    some = False
    for slot in range(edges.shape[1]):
        some |= edges[0, slot] < k1 and edges[1, slot] > k0
    return some


@part_of_kernels
def rows_that_see(
    lo: Array, hi: Array, edges: Array, q0: int, q1: int, k0: int, k1: int
) -> tuple[int, int, bool]:
    """From the first to behind the last row of q0..q1 that sees a key of k0..k1; whether all between see all.

    (q0, q0, False) if none does. Rows are looked at only where an edge of the mask crosses the tile.
    """
    for slot in range(lo.shape[0]):
        if edges[2, slot] <= k0 and edges[3, slot] >= k1:
            return q0, q1, True
    if not meets(edges, k0, k1):
        return q0, q0, False
    first, last, whole = q1, q0, 0
    for i in range(q0, q1):
        seen = 0
        for slot in range(lo.shape[0]):
            seen += max(0, min(hi[slot, i], k1) - max(lo[slot, i], k0))
        if seen > 0:
            first, last = min(first, i), i + 1
        if seen == k1 - k0:
            whole += 1
    if first >= last:
        return q0, q0, False
    return first, last, whole == last - first


@part_of_kernels
def visible_range(lo: Array, hi: Array, i: int, k0: int, k1: int) -> tuple[int, int]:
    """From the first to behind the last column of the tile that row i sees; (0, 0) if none."""
    first, last = k1, k0
    for slot in range(lo.shape[0]):
        a, b = max(lo[slot, i], k0), min(hi[slot, i], k1)
        if a < b:
            first, last = min(first, a), max(last, b)
    if first >= last:
        return 0, 0
    return first - k0, last - k0


@part_of_kernels
def fill_gaps(row: Array, lo: Array, hi: Array, i: int, k0: int, a: int, b: int, value: Any) -> None:
    """Write ``value`` where row i does not see, between the ends a, b of its `visible_range`."""
    end = a
    for slot in range(lo.shape[0]):
        begin, stop = max(lo[slot, i] - k0, a), min(hi[slot, i] - k0, b)
        if begin < stop:
            row[end:begin] = value
            end = stop
