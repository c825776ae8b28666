"""Backward of one step: five products for each tile, everything in place, no locks, no atomics.

A task owns the dK and dV rows of some key tiles of one key head, and walks over the queries of the
group. dQ collects from all key tiles: where one head must be cut into several tasks to keep all
cores busy, each adds to a buffer of its own and the buffers are summed in order, so that two runs
give the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial as bind

import numpy as np
import numpy.typing as npt

from ringcore.dtypes import accumulation_dtype
from ringcore.guard import BadRows, masked_product, nonfinite_rows
from ringcore.partial import finite_reference
from ringcore.protocols import Grads, Stats
from ringcore.step import Kind, Step
from ringcore_numpy.forward import _visible
from ringcore_numpy.pool import cores

Array = npt.NDArray[np.floating]


def attend_backward(
    q: Array,
    k: Array,
    v: Array,
    dout: Array,
    stats: Stats,
    delta: Array,
    step: Step,
    into: Grads | None,
    tile: tuple[int, int],
) -> Grads:
    """Add this step's dq, dk, dv to ``into``, which is written to."""
    dtype = accumulation_dtype(np, q.dtype)
    into = Grads(None, None, None) if into is None else into
    dq, dk, dv = (
        np.zeros(x.shape, dtype) if g is None else g if g.flags.writeable else g.copy()
        for g, x in zip(into, (q, k, v), strict=True)
    )
    seen_rows = stats.l != 0
    rows = _Rows(
        q,
        dout,
        finite_reference(np, stats.m),
        np.divide(1, stats.l, out=np.zeros_like(stats.l), where=seen_rows),
        delta,
    )
    bad = _Bad(*(nonfinite_rows(np, x, traced=False) for x in (q, k, dout)))
    batch, group = q.shape[:-3], q.shape[-3] // k.shape[-3]
    starts = range(0, k.shape[-2], tile[1])
    pieces = _pieces(len(starts), math.prod(batch) * k.shape[-3])
    tasks, sums = [], []
    for at in np.ndindex(*k.shape[:-2]):
        row, heads = at[:-1], slice(at[-1] * group, (at[-1] + 1) * group)
        one, mine, dq_here = step.only(row, heads), rows.of(row, heads), dq[row][heads]
        for piece in range(pieces):
            own = dq_here if piece == 0 else np.zeros_like(dq_here)
            if piece:
                sums.append((dq_here, own))
            tasks.append(
                bind(
                    _key_tiles, mine, k[at], v[at], one, own, dk[at], dv[at], starts[piece::pieces], tile, bad
                )
            )
    cores.run(tasks, 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (3 * q.shape[-1] + 2 * v.shape[-1]))
    for total, part in sums:
        total += part
    return Grads(dq, dk, dv)


@dataclass(frozen=True)
class _Rows:
    """The query side: q, dout, reference m, 1 / l and delta."""

    q: Array
    dout: Array
    m: Array
    inverse: Array
    delta: Array

    def of(self, batch: tuple[int, ...], heads: slice) -> _Rows:
        q, dout, m, inverse, delta = (
            x[batch][heads] for x in (self.q, self.dout, self.m, self.inverse, self.delta)
        )
        return _Rows(q, dout, m, inverse, delta)


@dataclass(frozen=True)
class _Bad:
    q: BadRows
    k: BadRows
    dout: BadRows


def _pieces(tiles: int, heads: int) -> int:
    """Into how many tasks each key head is cut: enough for all cores, never more than its tiles."""
    return max(1, min(tiles, -(-cores.threads() // max(1, heads))))


def _key_tiles(
    rows: _Rows,
    k: Array,
    v: Array,
    step: Step,
    dq: Array,
    dk: Array,
    dv: Array,
    starts: range,
    tile: tuple[int, int],
    bad: _Bad,
) -> None:
    """All query tiles of a group, (R, L_q, D), against some key tiles of its key head."""
    dtype = dq.dtype
    heads, L_q = rows.q.shape[:2]
    scratch = np.empty((2, min(tile[0], L_q) * min(tile[1], k.shape[0])), dtype)
    tiles = scores = 0
    wanted = set(starts)
    for head in range(heads):
        one = step.only((), slice(head, head + 1))
        for q0 in range(0, L_q, tile[0]):
            q1 = min(q0 + tile[0], L_q)
            scaled = np.multiply(rows.q[head, q0:q1], dtype.type(step.scale), dtype=dtype)
            dout = rows.dout[head, q0:q1].astype(dtype, copy=False)
            m, inverse, delta = (x[head, q0:q1, None] for x in (rows.m, rows.inverse, rows.delta))
            for k0, k1, kind in one.tiles(q0, q1, tile[1]):
                if k0 not in wanted:
                    continue
                kt, vt = (x[k0:k1].astype(dtype, copy=False) for x in (k, v))
                p, ds = (x[: (q1 - q0) * (k1 - k0)].reshape(q1 - q0, k1 - k0) for x in scratch)
                np.matmul(scaled, kt.T, out=p)
                np.subtract(p, m, out=p)
                np.exp(p, out=p)
                p *= inverse
                np.matmul(dout, vt.T, out=ds)
                ds -= delta
                ds *= p
                seen = None
                if kind is Kind.PARTIAL:
                    seen = _visible(one, q0, q1, k0, k1)
                    hidden = ~seen
                    np.copyto(p, 0, where=hidden)
                    np.copyto(ds, 0, where=hidden)
                flipped = None if seen is None else seen.T
                dq[head, q0:q1] += dtype.type(step.scale) * masked_product(
                    np, ds, kt, seen, bad.k.within(k0, k1)
                )
                dk[k0:k1] += masked_product(np, ds.T, scaled, flipped, bad.q.within(q0, q1))
                dv[k0:k1] += masked_product(np, p.T, dout, flipped, bad.dout.within(q0, q1))
                tiles, scores = tiles + 1, scores + p.size
    step.meter.add(tiles=tiles, scores=scores, flops=2 * scores * (3 * k.shape[-1] + 2 * v.shape[-1]))
