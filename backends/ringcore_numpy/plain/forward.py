"""Forward of one step: a task for each batch row, head and query tile; everything in place."""

from __future__ import annotations

import math
from functools import partial as bind

import numpy as np
import numpy.typing as npt

from ringcore.dtypes import accumulation_dtype
from ringcore.guard import all_finite, masked_product
from ringcore.partial import Partial, finite_reference, identity
from ringcore.step import Kind, Step
from ringcore_numpy.pool import cores

Array = npt.NDArray[np.floating]


def attend(q: Array, k: Array, v: Array, step: Step, into: Partial | None, tile: tuple[int, int]) -> Partial:
    """Merge attention of q (\\*B, H, L_q, D) over k, v into ``into``, which is written to."""
    if into is None:
        dtype = accumulation_dtype(np, q.dtype)
        into = identity(np, (*q.shape[:-1], v.shape[-1]), dtype)
    into = Partial(*(_writable(x) for x in into))
    finite_v = bool(all_finite(np, v, traced=False))
    group = q.shape[-3] // k.shape[-3]
    tasks = []
    for batch in np.ndindex(*q.shape[:-3]):
        for head in range(q.shape[-3]):
            one = step.only(batch, slice(head, head + 1))
            at, kv_at = (*batch, head), (*batch, head // group)
            rows = Partial(*(x[at] for x in into))
            for q0 in range(0, q.shape[-2], tile[0]):
                tasks.append(bind(_query_tile, q[at], k[kv_at], v[kv_at], one, rows, q0, tile, finite_v))
    cores.run(tasks, 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1]))
    return into


def _query_tile(
    q: Array, k: Array, v: Array, step: Step, into: Partial, q0: int, tile: tuple[int, int], finite_v: bool
) -> None:
    """Online softmax of the rows from q0 on; q (L_q, D), k (L_k, D), v (L_k, E)."""
    q1 = min(q0 + tile[0], q.shape[0])
    acc, m, l = (x[q0:q1] for x in into)  # noqa: E741
    dtype = acc.dtype
    scaled, factor = scaled_rows(q[q0:q1], step.scale, dtype)
    width = min(tile[1], k.shape[0])
    scratch, product, ones = np.empty((q1 - q0) * width, dtype), np.empty_like(acc), np.ones(width, dtype)
    acc_lost, l_lost = np.zeros_like(acc), np.zeros_like(l)
    tiles = scores = 0
    for k0, k1, kind in step.tiles(q0, q1, tile[1]):
        kt, vt = (x[k0:k1].astype(dtype, copy=False) for x in (k, v))
        s = scratch[: (q1 - q0) * (k1 - k0)].reshape(q1 - q0, k1 - k0)
        np.matmul(scaled, kt.T, out=s)
        if factor != 1:
            s *= factor
        seen = None
        if kind is Kind.PARTIAL:
            seen = visible(step, q0, q1, k0, k1)
            np.copyto(s, -np.inf, where=~seen)
        new_m = np.maximum(m, s.max(axis=1))
        reference = finite_reference(np, new_m)
        np.subtract(s, reference[:, None], out=s)
        np.exp(s, out=s)
        if not np.array_equal(new_m, m):
            rescale = np.exp(m - reference)
            for x in (l, l_lost):
                x *= rescale
            for x in (acc, acc_lost):
                x *= rescale[:, None]
            m[...] = new_m
        add_in_place(l, l_lost, s @ ones[: k1 - k0])  # thrice as fast as a sum along the rows
        if seen is None or finite_v:
            np.matmul(s, vt, out=product)
        else:
            product[...] = masked_product(np, s, vt, seen, finite_v)
        add_in_place(acc, acc_lost, product)
        tiles, scores = tiles + 1, scores + s.size
    step.meter.add(tiles=tiles, scores=scores, flops=2 * scores * (q.shape[-1] + v.shape[-1]))


def add_in_place(total: Array, lost: Array, term: Array) -> None:
    """`ringcore.compensated.add` that writes to all its arguments."""
    term -= lost
    new = total + term
    np.subtract(new, total, out=lost)
    lost -= term
    total[...] = new


def scaled_rows(q: Array, scale: float, dtype: np.dtype[np.floating]) -> tuple[Array, np.floating]:
    """Rows of q times the scale, and the factor left for the scores: 1, or the scale where q overflows."""
    factor = dtype.type(scale)
    scaled = np.multiply(q, factor, dtype=dtype)
    if abs(scale) > 1 and np.any(np.isinf(scaled) & np.isfinite(q)):
        return q.astype(dtype, copy=False), factor
    return scaled, dtype.type(1)


def visible(step: Step, q0: int, q1: int, k0: int, k1: int) -> npt.NDArray[np.bool_]:
    """The mask of a tile of one head."""
    seen = step.visible(np, q0, q1, k0, k1)
    return seen.reshape(seen.shape[-2:])  # type: ignore[no-any-return]


def _writable(x: Array) -> Array:
    """Partials that arrive from the generic code may be read-only or broadcast views."""
    return x if x.flags.writeable and x.flags.c_contiguous else np.array(x)
