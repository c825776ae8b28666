"""Online softmax of a block of queries over tiles of keys, with sums that do not lose a bit with each tile.

BLAS adds the products of some tiles up in ``part``. `settle` then adds that to ``total`` with compensation
(`ringcore.compensated`): after each tile this would cost a pass over the output, every few tiles nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcore_numpy.compiled.exponential import exp
from ringcore_numpy.compiled.options import part_of_kernels
from ringcore_numpy.compiled.rows import largest, weigh
from ringcore_numpy.compiled.sums import add, rescale
from ringcore_numpy.compiled.tiles import fill_gaps, visible_range

Array = Any


class Sums(NamedTuple):
    """Of M rows of scores: sum exp(s - m), shape (M,), and sum exp(s - m) v, shape (M, E)."""

    total_m: Array
    total_l: Array
    total: Array
    lost_l: Array  # what the totals have lost to rounding
    lost: Array
    part_m: Array  # of the tiles since the last `settle`; at least total_m
    part_l: Array
    part: Array


@part_of_kernels
def new_sums(M: int, E: int, like: Array) -> Sums:
    """Room for the sums of M rows, with nothing in it."""
    rows, sums = np.empty((5, M), like.dtype), np.empty((3, M, E), like.dtype)
    return Sums(rows[0], rows[1], sums[0], rows[2], sums[1], rows[3], rows[4], sums[2])


@part_of_kernels
def start(sums: Sums, row: int, m: Any, l: Any, acc: Array) -> None:  # noqa: E741
    """Let a row begin with the partial (acc, m, l)."""
    sums.total_m[row], sums.total_l[row] = m, l
    sums.part_m[row], sums.part_l[row], sums.lost_l[row] = m, 0, 0
    for e in range(acc.shape[0]):
        sums.total[row, e] = acc[e]
        sums.lost[row, e] = 0
        sums.part[row, e] = 0


@part_of_kernels
def weigh_tile(
    s: Array, sums: Sums, row: int, R: int, lo: Array, hi: Array, q0: int, k0: int, full: bool
) -> None:
    """Turn the scores s of a tile into weights; their rows are those of the sums from ``row`` on.

    R rows in a sequence, those of a group's heads, belong to one query; the first is q0, the first key k0.
    """
    zero = s.dtype.type(0)
    for i in range(s.shape[0]):
        seen = s[i]
        if not full:
            query = q0 + i // R
            a, b = visible_range(lo, hi, query, k0, k0 + s.shape[1])
            s[i, :a] = zero
            s[i, b:] = zero
            if lo.shape[0] > 1:
                fill_gaps(s[i], lo, hi, query, k0, a, b, -np.inf)
            seen = s[i, a:b]
        old = sums.part_m[row + i]
        new = largest(seen, old)
        if new > old:
            factor = exp(old - new)
            sums.part_l[row + i] *= factor
            rescale(sums.part[row + i], factor)
            sums.part_m[row + i] = new
        sums.part_l[row + i] += weigh(seen, new if new != -np.inf else zero)


@part_of_kernels
def settle(sums: Sums, M: int) -> None:
    """Add the parts of M rows to the totals, and begin new parts."""
    for row in range(M):
        m = sums.part_m[row]
        if m != sums.total_m[row]:
            factor = exp(sums.total_m[row] - m)
            for x in (
                sums.total_l[row : row + 1],
                sums.lost_l[row : row + 1],
                sums.total[row],
                sums.lost[row],
            ):
                rescale(x, factor)
            sums.total_m[row] = m
        one = sums.part.dtype.type(1)
        add(sums.total_l[row : row + 1], sums.lost_l[row : row + 1], sums.part_l[row : row + 1], one)
        add(sums.total[row], sums.lost[row], sums.part[row], one)
