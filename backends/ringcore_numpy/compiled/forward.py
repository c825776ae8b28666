"""Forward of one step, compiled: blocks of queries with all their keys in one call that holds no lock."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringcore_numpy.compiled.blas import product
from ringcore_numpy.compiled.softmax import new_sums, settle, start, weigh_tile
from ringcore_numpy.compiled.tiles import edges_of, rows_that_see
from ringcore_numpy.compiled.widen import number, tile_of

Array = Any


def attend(
    gemm: int, q: Array, k: Array, v: Array, lo: Array, hi: Array, scale: Any, factor: Any,
    acc: Array, m: Array, l: Array, first: int, last: int, height: int, width: int, group: int,  # noqa: E741
) -> tuple[int, int]:  # fmt: skip
    """Merge blocks ``first`` to ``last`` of the queries, counted through all heads, into (acc, m, l).

    Parameters
    ----------
    gemm
        Address of the matrix product (`blas.gemm_of`).
    q, k, v
        (N, R, L_q, D), (N, L_k, D), (N, L_k, E): N key heads, of all batch rows, with R query heads each.
    lo, hi
        (n, L_q), as in `ringcore.step.Step`.
    scale, factor
        Scores are ``factor * ((scale * q) @ k^T)``.
    acc, m, l
        (N, R, L_q, E), (N, R, L_q), accumulation dtype; written to.
    height, width
        Queries of a block, each with all its heads, and keys of a tile.
    group
        Tiles whose products BLAS adds up, see `softmax`.

    Returns
    -------
    tiles, scores : int
        Tiles computed, and scores in them.
    """
    R, L_q, D = q.shape[1], q.shape[2], q.shape[3]
    L_k, E = v.shape[1], v.shape[2]
    zero, one = acc.dtype.type(0), acc.dtype.type(1)
    height, width = min(height, L_q), min(width, L_k)
    packed, room = np.empty((R * height, D), acc.dtype), np.empty(R * height * width, acc.dtype)
    k_room, v_room = np.empty((width, D), acc.dtype), np.empty((width, E), acc.dtype)
    sums = new_sums(R * height, E, acc)
    edges = np.empty((4, lo.shape[0]), np.int64)
    blocks, tiles, scores = (L_q + height - 1) // height, 0, 0
    for block in range(first, last):
        head, q0 = block // blocks, block % blocks * height
        q1 = min(q0 + height, L_q)
        for i in range(q0, q1):
            for r in range(R):
                row = (i - q0) * R + r
                start(sums, row, m[head, r, i], l[head, r, i], acc[head, r, i])
                for d in range(D):
                    packed[row, d] = number(q[head, r, i, d]) * scale
        edges_of(lo, hi, q0, q1, edges)
        waiting = 0
        for k0 in range(0, L_k, width):
            k1 = min(k0 + width, L_k)
            i0, i1, full = rows_that_see(lo, hi, edges, q0, q1, k0, k1)
            if i0 == i1:
                continue
            a, b = (i0 - q0) * R, (i1 - q0) * R
            s = room[: (b - a) * (k1 - k0)].reshape(b - a, k1 - k0)
            product(gemm, factor, packed[a:b], False, tile_of(k[head], k0, k1, k_room), True, zero, s)
            weigh_tile(s, sums, a, R, lo, hi, i0, k0, full)
            product(gemm, one, s, False, tile_of(v[head], k0, k1, v_room), False, one, sums.part[a:b])
            tiles, scores, waiting = tiles + 1, scores + s.size, waiting + 1
            if waiting == group:
                settle(sums, (q1 - q0) * R)
                waiting = 0
        if waiting:
            settle(sums, (q1 - q0) * R)
        for i in range(q0, q1):
            for r in range(R):
                row = (i - q0) * R + r
                m[head, r, i], l[head, r, i] = sums.total_m[row], sums.total_l[row]
                for e in range(E):
                    acc[head, r, i, e] = sums.total[row, e]
    return tiles, scores
