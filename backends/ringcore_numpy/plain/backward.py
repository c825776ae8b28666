"""Backward of one step: at most five products for each tile, everything in place, no locks, no atomics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial as bind

import numpy as np
import numpy.typing as npt

from ringcore.block import products_width, rebuilding
from ringcore.dtypes import accumulation_dtype
from ringcore.guard import all_finite, masked_product
from ringcore.protocols import Grads, Stats
from ringcore.step import Kind, Step
from ringcore_numpy.plain.forward import add_in_place, scaled_rows, visible
from ringcore_numpy.pool import cores
from ringcore_numpy.waves import waves_of

Array = npt.NDArray[np.floating]


def attend_backward(
    q: Array,
    k: Array,
    v: Array,
    dout: Array,
    stats: Stats,
    delta: Array,
    step: Step,
    wrt: Sequence[str],
    into: Grads,
    tile: tuple[int, int],
) -> Grads:
    """Add this step's gradients of the inputs in ``wrt`` to those in ``into``, which are written to."""
    dtype = accumulation_dtype(np, q.dtype)
    grads = {
        name: _writable(into[name]) if name in into else np.zeros(x.shape, dtype)
        for name, x in (("q", q), ("k", k), ("v", v))
        if name in wrt
    }
    rows = _Rows(q, dout, *rebuilding(np, stats), delta)
    finite = _Finite(*(bool(all_finite(np, x, traced=False)) for x in (q, k, dout)))
    group = q.shape[-3] // k.shape[-3]
    q_starts, k_starts = range(0, q.shape[-2], tile[0]), range(0, k.shape[-2], tile[1])
    waves = waves_of(len(q_starts), len(k_starts), math.prod(k.shape[:-2]))
    heads = []
    for at in np.ndindex(*k.shape[:-2]):
        row, of_group = at[:-1], slice(at[-1] * group, (at[-1] + 1) * group)
        own = {name: x[row][of_group] if name == "q" else x[at] for name, x in grads.items()}
        heads.append(_Head(rows.of(row, of_group), k[at], v[at], step.only(row, of_group), own, finite, tile))
    flops = 2 * math.prod(q.shape[:-1]) * k.shape[-2] * products_width(wrt, q.shape[-1], v.shape[-1])
    for wave in range(waves):
        shares = [(q_starts[(task + wave) % waves :: waves], k_starts[task::waves]) for task in range(waves)]
        cores.run([bind(_share, head, *share) for head in heads for share in shares], flops // waves)
    return grads


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
class _Finite:
    """Whether an operand holds neither NaN nor inf."""

    q: bool
    k: bool
    dout: bool


@dataclass(frozen=True)
class _Head:
    """A key head, (L_k, D) and (L_k, E), the query heads of its group, (R, L_q, ..), and gradients."""

    rows: _Rows
    k: Array
    v: Array
    step: Step
    grads: Grads
    finite: _Finite
    tile: tuple[int, int]


def _share(head: _Head, q_starts: range, k_starts: range) -> None:
    """Some query tiles of all query heads of a group against some key tiles."""
    rows, grads, finite, step = head.rows, head.grads, head.finite, head.step
    dtype = rows.m.dtype
    L_q, L_k = rows.q.shape[1], head.k.shape[0]
    scratch = np.empty((2, min(head.tile[0], L_q) * min(head.tile[1], L_k)), dtype)
    scale, tiles, scores = dtype.type(step.scale), 0, 0
    lost = {
        k0: {n: np.zeros_like(grads[n][k0 : k0 + head.tile[1]]) for n in grads if n != "q"} for k0 in k_starts
    }
    for r in range(rows.q.shape[0]):
        one = step.only((), slice(r, r + 1))
        for q0 in q_starts:
            q1 = min(q0 + head.tile[0], L_q)
            scaled, factor = scaled_rows(rows.q[r, q0:q1], step.scale, dtype)
            dout = rows.dout[r, q0:q1].astype(dtype, copy=False)
            m, inverse, delta = (x[r, q0:q1, None] for x in (rows.m, rows.inverse, rows.delta))
            dq_lost = np.zeros(scaled.shape, dtype)
            for k0, k1, kind in one.tiles(q0, q1, head.tile[1]):
                if k0 not in lost:
                    continue
                kt, vt = (x[k0:k1].astype(dtype, copy=False) for x in (head.k, head.v))
                p, ds = (x[: (q1 - q0) * (k1 - k0)].reshape(q1 - q0, k1 - k0) for x in scratch)
                np.matmul(scaled, kt.T, out=p)
                if factor != 1:
                    p *= factor
                np.subtract(p, m, out=p)
                np.exp(p, out=p)
                p *= inverse
                seen = seen_t = hidden = None
                if kind is Kind.PARTIAL:
                    seen = visible(one, q0, q1, k0, k1)
                    seen_t, hidden = seen.T, ~seen
                    np.copyto(p, 0, where=hidden)
                if "v" in grads:
                    term = masked_product(np, p.T, dout, seen_t, finite.dout)
                    add_in_place(grads["v"][k0:k1], lost[k0]["v"], term)
                if "q" in grads or "k" in grads:
                    np.matmul(dout, vt.T, out=ds)
                    ds -= delta
                    ds *= p
                    if hidden is not None:
                        np.copyto(ds, 0, where=hidden)
                if "q" in grads:
                    term = scale * masked_product(np, ds, kt, seen, finite.k)
                    add_in_place(grads["q"][r, q0:q1], dq_lost, term)
                if "k" in grads:
                    term = factor * masked_product(np, ds.T, scaled, seen_t, finite.q)
                    add_in_place(grads["k"][k0:k1], lost[k0]["k"], term)
                tiles, scores = tiles + 1, scores + p.size
    width = products_width(tuple(grads), head.k.shape[-1], head.v.shape[-1])
    step.meter.add(tiles=tiles, scores=scores, flops=2 * scores * width)


def _writable(x: Array) -> Array:
    """Accumulators that arrive from the generic code may be read-only."""
    return x if x.flags.writeable else x.copy()
