"""Backward of one step, compiled: some blocks of queries against some tiles of keys in one call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcore_numpy.compiled.blas import product
from ringcore_numpy.compiled.options import part_of_kernels
from ringcore_numpy.compiled.rows import differentiate
from ringcore_numpy.compiled.sums import add
from ringcore_numpy.compiled.tiles import edges_of, fill_gaps, meets, rows_that_see, visible_range
from ringcore_numpy.compiled.widen import number, tile_of

Array = Any


class Share(NamedTuple):
    """Blocks ``q_first``, ``q_first + step``, .. of a head's queries; tiles ``k_first``, .. of its keys."""

    head: int
    q_first: int
    k_first: int
    step: int


class Wanted(NamedTuple):
    """Which gradients to compute."""

    q: bool
    k: bool
    v: bool


def attend_backward(
    gemm: int, q: Array, dout: Array, m: Array, inverse: Array, delta: Array, k: Array, finite_k: Array,
    v: Array, lo: Array, hi: Array, scale: Any, factor: Any,
    dq: Array, dk: Array, dv: Array, wanted: Wanted, share: Share, height: int, width: int, group: int,
) -> tuple[int, int]:  # fmt: skip
    """Add a share's part of the gradients to dq, dk, dv, to whose rows nobody else may write meanwhile.

    Parameters
    ----------
    q, dout, m, inverse, delta
        The query side of N key heads with R query heads each, (N, R, L_q, D), (N, R, L_q, E) and (N, R, L_q);
        weights are ``exp(s - m) * inverse``.
    finite_k
        The keys, or a copy of them with 0 for NaN and inf.
    dq, dk, dv
        Like q, k, v, accumulation dtype; what is not wanted is not looked at.
    gemm, k, v, lo, hi, scale, factor, height, width, group
        As for `forward.attend`.

    Returns
    -------
    tiles, scores : int
        Tiles computed, and scores in them.
    """
    R, L_q, D = q.shape[1], q.shape[2], q.shape[3]
    L_k, E = v.shape[1], v.shape[2]
    head, step = share.head, share.step
    zero, one, kind = m.dtype.type(0), m.dtype.type(1), m.dtype
    height, width = min(height, L_q), min(width, L_k)
    q_blocks, k_tiles = (L_q + height - 1) // height, (L_k + width - 1) // width
    own_blocks = (q_blocks - share.q_first + step - 1) // step
    at_once = min(group, (k_tiles - share.k_first + step - 1) // step)  # tiles of keys

    q_rows, dout_rows = np.empty((R * height, D), kind), np.empty((R * height, E), kind)
    p_room, ds_room = np.empty(R * height * width, kind), np.empty(R * height * width, kind)
    k_room, v_room = np.empty((width, D), kind), np.empty((width, E), kind)
    dq_part, dq_lost = (
        np.zeros((R * height, D), kind),
        np.zeros((own_blocks * R * height if wanted.q else 0, D), kind),
    )
    dk_part, dk_lost = np.zeros((at_once * width, D), kind), np.empty((at_once * width, D), kind)
    dv_part, dv_lost = np.zeros((at_once * width, E), kind), np.empty((at_once * width, E), kind)
    edges = np.empty((4, lo.shape[0]), np.int64)
    tiles = scores = 0

    for k_group in range(share.k_first, k_tiles, step * at_once):
        k_group_end = min(k_group + step * at_once, k_tiles)
        dk_lost[:] = 0
        dv_lost[:] = 0
        waiting = 0
        for block in range(share.q_first, q_blocks, step):
            q0, q1 = block * height, min(block * height + height, L_q)
            edges_of(lo, hi, q0, q1, edges)
            if not meets(edges, k_group * width, k_group_end * width):
                continue
            _load(q, head, q0, q1, scale, q_rows)
            _load(dout, head, q0, q1, one, dout_rows)
            for tile in range(k_group, k_group_end, step):
                k0, k1 = tile * width, min(tile * width + width, L_k)
                i0, i1, full = rows_that_see(lo, hi, edges, q0, q1, k0, k1)
                if i0 == i1:
                    continue
                a, b, n = (i0 - q0) * R, (i1 - q0) * R, (i1 - i0) * R * (k1 - k0)
                p, ds = p_room[:n].reshape(b - a, k1 - k0), ds_room[:n].reshape(b - a, k1 - k0)
                kt, vt = tile_of(k[head], k0, k1, k_room), tile_of(v[head], k0, k1, v_room)
                product(gemm, factor, q_rows[a:b], False, kt, True, zero, p)
                if wanted.q or wanted.k:
                    product(gemm, one, dout_rows[a:b], False, vt, True, zero, ds)
                for i in range(i0, i1):
                    for r in range(R):
                        row = (i - i0) * R + r
                        at = m[head, r, i], inverse[head, r, i], delta[head, r, i]
                        _differentiate(p[row], ds[row], at, lo, hi, i, k0, k1, full)
                own = (tile - k_group) // step * width
                own_end = own + k1 - k0
                if wanted.v:
                    product(gemm, one, p, True, dout_rows[a:b], False, one, dv_part[own:own_end])
                if wanted.k:
                    product(gemm, factor, ds, True, q_rows[a:b], False, one, dk_part[own:own_end])
                if wanted.q:
                    if finite_k.ctypes.data != k.ctypes.data:
                        kt = tile_of(finite_k[head], k0, k1, k_room)
                    product(gemm, one, ds, False, kt, False, one, dq_part[a:b])
                tiles, scores = tiles + 1, scores + n
            if wanted.q:
                lost = (block - share.q_first) // step * R * height
                for i in range(q0, q1):
                    for r in range(R):
                        row = (i - q0) * R + r
                        add(dq[head, r, i], dq_lost[lost + row], dq_part[row], scale * factor)
            waiting += 1
            if waiting == group:
                _settle(dk[head], dk_lost, dk_part, wanted.k, k_group, k_group_end, step, width)
                _settle(dv[head], dv_lost, dv_part, wanted.v, k_group, k_group_end, step, width)
                waiting = 0
        if waiting:
            _settle(dk[head], dk_lost, dk_part, wanted.k, k_group, k_group_end, step, width)
            _settle(dv[head], dv_lost, dv_part, wanted.v, k_group, k_group_end, step, width)
    return tiles, scores


@part_of_kernels
def _load(x: Array, head: int, q0: int, q1: int, scale: Any, rows: Array) -> None:
    """Queries q0..q1 of all heads of a group, scaled: the R rows of a query follow each other."""
    R = x.shape[1]
    for i in range(q0, q1):
        for r in range(R):
            for d in range(x.shape[3]):
                rows[(i - q0) * R + r, d] = number(x[head, r, i, d]) * scale


@part_of_kernels
def _differentiate(
    p: Array, ds: Array, at: Any, lo: Array, hi: Array, i: int, k0: int, k1: int, full: bool
) -> None:
    """Scores of query i to weights, dout v^T to the gradient of the scores; both 0 where it does not see."""
    m, inverse, delta = at
    if full:
        differentiate(p, ds, m, inverse, delta)
        return
    a, b = visible_range(lo, hi, i, k0, k1)
    differentiate(p[a:b], ds[a:b], m, inverse, delta)
    for row in (p, ds):
        row[:a] = 0
        row[b:] = 0
        fill_gaps(row, lo, hi, i, k0, a, b, 0)


@part_of_kernels
def _settle(
    total: Array, lost: Array, part: Array, wanted: bool, k_group: int, k_end: int, step: int, width: int
) -> None:
    """Add the parts of a group of key tiles to their gradient."""
    if not wanted:
        return
    for tile in range(k_group, k_end, step):
        own = (tile - k_group) // step * width
        for j in range(tile * width, min(tile * width + width, total.shape[0])):
            row = own + j - tile * width
            add(total[j], lost[row], part[row], part.dtype.type(1))
