"""Forward and backward of one step in plain array API: the default kernels, and the reference for others.

Tiled, so that no score matrix is larger than one tile. The H / G query heads of a group are stacked
on the rows of a tile, so that K and V are read once and the sum over the group in dK and dV is part
of a product. Runs under any array API library, eager or traced.

Reference: T. Dao, *FlashAttention-2*, 2023 (the tiling and the backward formulas).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from array_api_compat import array_namespace, device

from ringcore import wire
from ringcore.dtypes import accumulation_dtype
from ringcore.guard import masked_product, nonfinite_rows
from ringcore.partial import Partial, finite_reference, identity
from ringcore.product import matmul
from ringcore.protocols import Array, ArraySpec, Grads, Stats, Wire
from ringcore.step import Kind, Step


@dataclass(frozen=True)
class GenericBackend:
    """Kernels for any library that follows the array API standard.

    Parameters
    ----------
    tile : (int, int)
        Rows and columns of a score tile.
    """

    tile: tuple[int, int] = (256, 256)
    name: str = "generic"

    def attend(self, q: Array, k: Array, v: Array, step: Step, into: Partial | None) -> Partial:
        """See `ringcore.protocols.Backend.attend`."""
        return attend(q, k, v, step, into, self.tile)

    def attend_backward(
        self,
        q: Array,
        k: Array,
        v: Array,
        out: Array | None,
        dout: Array,
        stats: Stats,
        delta: Array,
        step: Step,
        into: Grads | None,
    ) -> Grads:
        """See `ringcore.protocols.Backend.attend_backward`; ``out`` is not needed."""
        return attend_backward(q, k, v, dout, stats, delta, step, into, self.tile)

    def pack(self, arrays: Sequence[Array]) -> Wire:
        """See `ringcore.protocols.Backend.pack`; through the host."""
        return wire.pack([wire.to_host(x) for x in arrays])

    def blank(self, specs: Sequence[ArraySpec]) -> Wire:
        """See `ringcore.protocols.Backend.blank`."""
        return wire.blank(specs)

    def unpack(self, wire_: Wire, like: Array) -> tuple[Array, ...]:
        """See `ringcore.protocols.Backend.unpack`."""
        return tuple(wire.from_host(x, like) for x in wire.unpack(wire_))


def attend(q: Array, k: Array, v: Array, step: Step, into: Partial | None, tile: tuple[int, int]) -> Partial:
    """Merge attention of q (\\*B, H, L_q, D) over k (\\*B, G, L_k, D), v (\\*B, G, L_k, E) into a partial."""
    xp = array_namespace(q, k, v)
    dtype = accumulation_dtype(xp, q.dtype)
    heads = _Heads(q.shape[:-3], k.shape[-3], q.shape[-3] // max(1, k.shape[-3]))
    if into is None:
        into = identity(xp, (*q.shape[:-1], v.shape[-1]), dtype, device(q))
    bad_v = nonfinite_rows(xp, v, step.traced)
    rows = []
    for q0 in range(0, q.shape[-2], tile[0]):
        q1 = min(q0 + tile[0], q.shape[-2])
        scaled = heads.stack(xp, xp.astype(q[..., q0:q1, :], dtype) * step.scale)
        acc = heads.stack(xp, into.acc[..., q0:q1, :])
        m, l = (heads.stack(xp, x[..., q0:q1, None])[..., 0] for x in (into.m, into.l))  # noqa: E741
        for k0, k1, kind in step.tiles(q0, q1, tile[1]):
            kt, vt = (xp.astype(x[..., k0:k1, :], dtype) for x in (k, v))
            s = matmul(scaled, xp.matrix_transpose(kt))
            seen = None
            if kind is Kind.PARTIAL:
                seen = heads.stack_mask(xp, step.visible(xp, q0, q1, k0, k1))
                s = xp.where(seen, s, xp.full_like(s, -math.inf))
            new_m = xp.maximum(m, xp.max(s, axis=-1))
            reference = finite_reference(xp, new_m)
            p = xp.exp(s - reference[..., None])
            rescale = xp.exp(m - reference)
            l = l * rescale + xp.sum(p, axis=-1)  # noqa: E741
            acc = acc * rescale[..., None] + masked_product(xp, p, vt, seen, bad_v.within(k0, k1))
            m = new_m
            _count(step, heads, q1 - q0, k1 - k0, q.shape[-1] + v.shape[-1])
        rows.append(
            (heads.unstack(xp, acc), heads.unstack(xp, m[..., None]), heads.unstack(xp, l[..., None]))
        )
    if not rows:
        return into
    acc, m, l = (xp.concat(part, axis=-2) for part in zip(*rows, strict=True))  # noqa: E741
    return Partial(acc, m[..., 0], l[..., 0])


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
    """Add this step's dq, dk, dv.

    The weights are rebuilt as ``p = exp(s - m) / l`` from the statistics of the whole row; a rounded
    lse would double the error. ``delta`` is ``rowsum(dout * out) - dlse`` with the global out.
    """
    xp = array_namespace(q, k, v)
    dtype = accumulation_dtype(xp, q.dtype)
    heads = _Heads(q.shape[:-3], k.shape[-3], q.shape[-3] // max(1, k.shape[-3]))
    starts = range(0, q.shape[-2], tile[0])
    reference = finite_reference(xp, stats.m)
    seen_rows = stats.l != 0
    inverse = xp.where(
        seen_rows, 1 / xp.where(seen_rows, stats.l, xp.ones_like(stats.l)), xp.zeros_like(stats.l)
    )
    bad = {name: nonfinite_rows(xp, x, step.traced) for name, x in (("q", q), ("k", k), ("dout", dout))}
    dq = [
        xp.zeros((*q.shape[:-2], min(tile[0], q.shape[-2] - q0), q.shape[-1]), dtype=dtype, device=device(q))
        for q0 in starts
    ]
    dk, dv = [], []
    columns = _ColumnTiles(step, starts, tile, q.shape[-2])
    for k0 in range(0, k.shape[-2], tile[1]):
        k1 = min(k0 + tile[1], k.shape[-2])
        kt, vt = (xp.astype(x[..., k0:k1, :], dtype) for x in (k, v))
        dk_tile, dv_tile = xp.zeros_like(kt), xp.zeros_like(vt)
        for i, q0, q1, kind in columns.of(k0):
            scaled = heads.stack(xp, xp.astype(q[..., q0:q1, :], dtype) * step.scale)
            dout_tile = heads.stack(xp, xp.astype(dout[..., q0:q1, :], dtype))
            ref, inv, d = (heads.stack(xp, x[..., q0:q1, None]) for x in (reference, inverse, delta))
            p = xp.exp(matmul(scaled, xp.matrix_transpose(kt)) - ref) * inv
            ds = p * (matmul(dout_tile, xp.matrix_transpose(vt)) - d)
            seen = seen_t = None
            if kind is Kind.PARTIAL:
                seen = heads.stack_mask(xp, step.visible(xp, q0, q1, k0, k1))
                p, ds = (xp.where(seen, x, xp.zeros_like(x)) for x in (p, ds))
                seen_t = xp.matrix_transpose(seen)
            ds_t, p_t = xp.matrix_transpose(ds), xp.matrix_transpose(p)
            bad_q, bad_dout = (bad[x].within(q0, q1, heads.R) for x in ("q", "dout"))
            part = masked_product(xp, ds, kt, seen, bad["k"].within(k0, k1))
            dq[i] = dq[i] + heads.unstack(xp, part) * step.scale
            dk_tile = dk_tile + masked_product(xp, ds_t, scaled, seen_t, bad_q)
            dv_tile = dv_tile + masked_product(xp, p_t, dout_tile, seen_t, bad_dout)
            _count(step, heads, q1 - q0, k1 - k0, 3 * q.shape[-1] + 2 * v.shape[-1])
        dk.append(dk_tile)
        dv.append(dv_tile)

    def joined(tiles: list[Array], like: Array, so_far: Array | None) -> Array:
        new = xp.concat(tiles, axis=-2) if tiles else xp.zeros(like.shape, dtype=dtype, device=device(q))
        return new if so_far is None else so_far + new

    into = Grads(None, None, None) if into is None else into
    return Grads(joined(dq, q, into.dq), joined(dk, k, into.dk), joined(dv, v, into.dv))


@dataclass(frozen=True)
class _Heads:
    """Stacking of a group's query heads on the rows: (\\*B, G * R, t, x) <-> (\\*B, G, R * t, x)."""

    batch: tuple[int, ...]
    G: int
    R: int

    def stack(self, xp: Array, x: Array) -> Array:
        return xp.reshape(x, (*self.batch, self.G, self.R * x.shape[-2], x.shape[-1]))

    def unstack(self, xp: Array, x: Array) -> Array:
        return xp.reshape(x, (*self.batch, self.G * self.R, x.shape[-2] // max(1, self.R), x.shape[-1]))

    def stack_mask(self, xp: Array, seen: Array) -> Array:
        tile = tuple(seen.shape[-2:])
        return self.stack(xp, xp.broadcast_to(seen, (*self.batch, self.G * self.R, *tile)))


class _ColumnTiles:
    """The tiles of `Step.tiles`, which come row by row, handed out column by column."""

    def __init__(self, step: Step, starts: range, tile: tuple[int, int], L_q: int) -> None:
        self._by_column: dict[int, list[tuple[int, int, int, Kind]]] = {}
        for i, q0 in enumerate(starts):
            q1 = min(q0 + tile[0], L_q)
            for k0, _, kind in step.tiles(q0, q1, tile[1]):
                self._by_column.setdefault(k0, []).append((i, q0, q1, kind))

    def of(self, k0: int) -> list[tuple[int, int, int, Kind]]:
        return self._by_column.get(k0, [])


def _count(step: Step, heads: _Heads, rows: int, columns: int, width: int) -> None:
    scores = math.prod(heads.batch) * heads.G * heads.R * rows * columns
    step.meter.add(tiles=1, scores=scores, flops=2 * scores * width)
