"""Cutting arrays into the shards of a layout and joining them again, by slices alone.

No index array is made, so that any dtype of any array library works and a long sequence costs nothing extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_numpy_array

from ringcore.protocols import Array

if TYPE_CHECKING:
    from ringcore.layout import Layout


def cut(layout: Layout, x: Array, rank: int, axis: int) -> Array:
    """See `Layout.shard`."""
    axis = sequence_axis("x", x, axis)
    if x.shape[axis] != layout.length:
        raise ValueError(
            f"x must have {layout.length} positions on axis {axis} to fit {layout!r}. "
            f"Got shape {tuple(x.shape)}. Pass axis= of the sequence, or a layout of this length."
        )
    if layout.kind == "striped" and layout.block > 1:
        block, cycles, rest = layout.deal
        start, dealt = rank * block, cycles * block * layout.ranks
        table = _fold(_slice(x, axis, 0, dealt), axis, (cycles, block * layout.ranks))
        mine = _fold(_slice(table, axis + 1, start, start + block), axis, (cycles * block,), merge=2)
        tail = _slice(x, axis, dealt + min(start, rest), dealt + min(start + block, rest))
        return _concat([mine, tail], axis)
    parts = [_slice(x, axis, r.start, r.stop, r.step) for r in layout.ranges(rank)]
    return _concat(parts or [_slice(x, axis, 0, 0)], axis)


def join(layout: Layout, shards: Sequence[Array], axis: int) -> Array:
    """See `Layout.unshard`."""
    shards = list(shards)
    if len(shards) != layout.ranks:
        raise ValueError(
            f"shards must be one for each of {layout.ranks} ranks. Got {len(shards)}. "
            f"Give all shards in rank order, or the layout they were made with (this is {layout!r})."
        )
    axis = sequence_axis("shards[0]", shards[0], axis)
    for rank, part in enumerate(shards):
        _check_shard(layout, rank, part, shards[0], axis)
    if layout.kind == "striped":
        block, cycles, _ = layout.deal
        dealt = [_fold(_slice(s, axis, 0, cycles * block), axis, (cycles, block)) for s in shards]
        whole = _fold(_concat(dealt, axis + 1), axis, (cycles * block * layout.ranks,), merge=2)
        parts = [whole, *(_slice(s, axis, cycles * block, s.shape[axis]) for s in shards)]
    elif layout.kind == "zigzag":
        edges = [layout.chunk_start(rank + 1) - layout.chunk_start(rank) for rank in range(layout.ranks)]
        early = [_slice(s, axis, 0, edge) for s, edge in zip(shards, edges, strict=True)]
        late = [_slice(s, axis, edge, s.shape[axis]) for s, edge in zip(shards, edges, strict=True)]
        parts = early + late[::-1]
    else:
        parts = shards
    return _concat(parts, axis)


def sequence_axis(name: str, x: Array, axis: int) -> int:
    """``axis`` of ``x`` counted from the front."""
    if not is_array_api_obj(x):
        raise TypeError(
            f"{name} must be an array. Got {type(x).__name__}. Convert it, for instance with numpy.asarray."
        )
    if not -x.ndim <= axis < x.ndim:
        cure = "Pass axis=0." if x.ndim == 1 else "Pass axis= of the sequence."
        raise ValueError(f"axis must be one of the {x.ndim} axes of {name}. Got axis={axis}. {cure}")
    return int(axis % x.ndim)


def _check_shard(layout: Layout, rank: int, part: Array, first: Array, axis: int) -> None:
    if not is_array_api_obj(part) or part.ndim != first.ndim:
        got = f"{part.ndim} axes" if is_array_api_obj(part) else type(part).__name__
        raise ValueError(
            f"shard of rank {rank} must be an array of {first.ndim} axes, as that of rank 0 is. Got {got}. "
            "Give the shards of one array."
        )
    want = (*first.shape[:axis], layout.count(rank), *first.shape[axis + 1 :])
    if tuple(part.shape) != want or part.dtype != first.dtype:
        raise ValueError(
            f"shard of rank {rank} must have shape {want} and dtype {first.dtype} to fit {layout!r} on axis "
            f"{axis}. Got {tuple(part.shape)} and {part.dtype}. Give the layout that the shards were made "
            "with, and the shards in rank order."
        )


def _slice(x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    return x[(slice(None),) * axis + (slice(start, stop, step),) + (slice(None),) * (x.ndim - axis - 1)]


def _fold(x: Array, axis: int, sizes: tuple[int, ...], merge: int = 1) -> Array:
    """``merge`` axes from ``axis`` on replaced by axes of these sizes; splitting is a view."""
    return array_namespace(x).reshape(x, (*x.shape[:axis], *sizes, *x.shape[axis + merge :]))


def _concat(parts: list[Array], axis: int) -> Array:
    if len(parts) == 1:
        return parts[0]
    if is_numpy_array(parts[0]):  # concat alone would turn a foreign byte order into the native one
        return np.concatenate(parts, axis=axis, dtype=parts[0].dtype)
    return array_namespace(*parts).concat(parts, axis=axis)
