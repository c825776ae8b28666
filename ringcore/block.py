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
from typing import Any

from array_api_compat import array_namespace, device

from ringcore import wire
from ringcore.compensated import add
from ringcore.dtypes import accumulation_dtype
from ringcore.guard import all_finite, masked_product
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

    def __post_init__(self) -> None:
        check_tile(self.tile)

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
        wrt: Sequence[str],
        into: Grads,
    ) -> Grads:
        """See `ringcore.protocols.Backend.attend_backward`; ``out`` is not needed."""
        return attend_backward(q, k, v, dout, stats, delta, step, wrt, into, self.tile)

    def pack(self, arrays: Sequence[Array], where: str) -> Wire:
        """See `ringcore.protocols.Backend.pack`; through the host, the only place it can reach."""
        return wire.pack([wire.to_host(x) for x in arrays])

    def blank(self, specs: Sequence[ArraySpec], where: str) -> Wire:
        """See `ringcore.protocols.Backend.blank`."""
        return wire.blank(specs)

    def unpack(self, wire_: Wire, like: Array) -> tuple[Array, ...]:
        """See `ringcore.protocols.Backend.unpack`."""
        return tuple(wire.from_host(x, like) for x in wire.unpack(wire_))


def check_tile(tile: Any) -> None:
    """Raise ValueError unless it is (rows, columns), both at least 1."""
    if len(tile) != 2 or any(not isinstance(n, int) or n < 1 for n in tile):
        raise ValueError(f"tile must be (rows, columns), two integers >= 1. Got {tile!r}.")


def attend(q: Array, k: Array, v: Array, step: Step, into: Partial | None, tile: tuple[int, int]) -> Partial:
    """Merge attention of q (\\*B, H, L_q, D) over k (\\*B, G, L_k, D), v (\\*B, G, L_k, E) into a partial."""
    xp = array_namespace(q, k, v)
    dtype = accumulation_dtype(xp, q.dtype)
    heads = _Heads(q.shape[:-3], k.shape[-3], q.shape[-3] // max(1, k.shape[-3]))
    if into is None:
        into = identity(xp, (*q.shape[:-1], v.shape[-1]), dtype, device(q))
    finite_v = all_finite(xp, v, step.traced)
    rows = []
    for q0 in range(0, q.shape[-2], tile[0]):
        q1 = min(q0 + tile[0], q.shape[-2])
        qt, acc = (heads.stack(xp, xp.astype(x[..., q0:q1, :], dtype, copy=False)) for x in (q, into.acc))
        m, l = (heads.stack(xp, x[..., q0:q1, None])[..., 0] for x in (into.m, into.l))  # noqa: E741
        acc_lost, l_lost = xp.zeros_like(acc), xp.zeros_like(l)
        for k0, k1, kind in step.tiles(q0, q1, tile[1]):
            kt, vt = (xp.astype(x[..., k0:k1, :], dtype, copy=False) for x in (k, v))
            s = matmul(qt, xp.matrix_transpose(kt)) * step.scale
            seen = None
            if kind is Kind.PARTIAL:
                seen = heads.stack_mask(xp, step.visible(xp, q0, q1, k0, k1, device(q)))
                s = xp.where(seen, s, xp.full_like(s, -math.inf))
            new_m = xp.maximum(m, xp.max(s, axis=-1))
            reference = finite_reference(xp, new_m)
            p = xp.exp(s - reference[..., None])
            rescale = xp.exp(m - reference)
            l, l_lost = add(l * rescale, l_lost * rescale, xp.sum(p, axis=-1))  # noqa: E741
            acc, acc_lost = (x * rescale[..., None] for x in (acc, acc_lost))
            acc, acc_lost = add(acc, acc_lost, masked_product(xp, p, vt, seen, finite_v))
            m = new_m
            _count(step, heads, q1 - q0, k1 - k0, q.shape[-1] + v.shape[-1])
        tile_of_all = (acc, m[..., None], l[..., None])
        rows.append(tuple(heads.unstack(xp, x) for x in tile_of_all))
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
    wrt: Sequence[str],
    into: Grads,
    tile: tuple[int, int],
) -> Grads:
    """This step's gradients of the inputs named in ``wrt``, added to those in ``into``.

    The weights are rebuilt as ``p = exp(s - m) / l`` from the statistics of the whole row; a rounded
    lse would double the error. ``delta`` is ``rowsum(dout * out) - dlse`` with the global out.
    """
    xp = array_namespace(q, k, v)
    dtype = accumulation_dtype(xp, q.dtype)
    heads = _Heads(q.shape[:-3], k.shape[-3], q.shape[-3] // max(1, k.shape[-3]))
    starts = range(0, q.shape[-2], tile[0])
    reference, inverse = rebuilding(xp, stats)
    finite_q, finite_k, finite_dout = (all_finite(xp, x, step.traced) for x in (q, k, dout))
    grads: dict[str, list[Array]] = {name: [] for name in wrt}
    if "q" in wrt:
        sizes = [min(tile[0], q.shape[-2] - q0) for q0 in starts]
        grads["q"] = [_zeros(xp, (*q.shape[:-2], n, q.shape[-1]), dtype, q) for n in sizes]
    dq_lost = [xp.zeros_like(x) for x in grads.get("q", [])]
    width = products_width(wrt, q.shape[-1], v.shape[-1])
    columns = _ColumnTiles(step, starts, tile, q.shape[-2])
    for k0 in range(0, k.shape[-2], tile[1]):
        k1 = min(k0 + tile[1], k.shape[-2])
        kt, vt = (xp.astype(x[..., k0:k1, :], dtype, copy=False) for x in (k, v))
        dk, dk_lost, dv, dv_lost = (xp.zeros_like(x) for x in (kt, kt, vt, vt))
        for i, q0, q1, kind in columns.of(k0):
            qt, dout_tile = (
                xp.astype(heads.stack(xp, x[..., q0:q1, :]), dtype, copy=False) for x in (q, dout)
            )
            ref, inv, d = (heads.stack(xp, x[..., q0:q1, None]) for x in (reference, inverse, delta))
            p = xp.exp(matmul(qt, xp.matrix_transpose(kt)) * step.scale - ref) * inv
            seen = seen_t = None
            if kind is Kind.PARTIAL:
                seen = heads.stack_mask(xp, step.visible(xp, q0, q1, k0, k1, device(q)))
                seen_t = xp.matrix_transpose(seen)
                p = xp.where(seen, p, xp.zeros_like(p))
            if "v" in wrt:
                part = masked_product(xp, xp.matrix_transpose(p), dout_tile, seen_t, finite_dout)
                dv, dv_lost = add(dv, dv_lost, part)
            if "q" in wrt or "k" in wrt:
                ds = p * (matmul(dout_tile, xp.matrix_transpose(vt)) - d)
                ds = ds if seen is None else xp.where(seen, ds, xp.zeros_like(ds))
            if "q" in wrt:
                part = masked_product(xp, ds, kt, seen, finite_k) * step.scale
                grads["q"][i], dq_lost[i] = add(grads["q"][i], dq_lost[i], heads.unstack(xp, part))
            if "k" in wrt:
                part = masked_product(xp, xp.matrix_transpose(ds), qt, seen_t, finite_q)
                dk, dk_lost = add(dk, dk_lost, part * step.scale)
            _count(step, heads, q1 - q0, k1 - k0, width)
        for name, part in (("k", dk), ("v", dv)):
            if name in wrt:
                grads[name].append(part)
    shapes = {"q": q.shape, "k": k.shape, "v": v.shape}
    total = {}
    for name, tiles in grads.items():
        new = xp.concat(tiles, axis=-2) if tiles else _zeros(xp, shapes[name], dtype, q)
        total[name] = into[name] + new if name in into else new
    return total


def rebuilding(xp: Array, stats: Stats) -> tuple[Array, Array]:
    """Reference m and factor 1 / l with which ``p = exp(s - m) * (1 / l)``; both 0 for an unseen row."""
    seen = stats.l != 0
    inverse = xp.where(seen, 1 / xp.where(seen, stats.l, xp.ones_like(stats.l)), xp.zeros_like(stats.l))
    return finite_reference(xp, stats.m), inverse


def products_width(wrt: Sequence[str], D: int, E: int) -> int:
    """Multiply-adds that a backward step needs for each score: its products are as wide as this together."""
    return D + E * ("q" in wrt or "k" in wrt) + D * ("q" in wrt) + D * ("k" in wrt) + E * ("v" in wrt)


def _zeros(xp: Array, shape: tuple[int, ...], dtype: object, like: Array) -> Array:
    return xp.zeros(tuple(shape), dtype=dtype, device=device(like))


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
