"""From a step's arrays to calls of the kernels: batch rows, heads, blocks, tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import Any

import numpy as np

from ringcore.block import products_width, rebuilding
from ringcore.dtypes import accumulation_dtype, dtype_name
from ringcore.partial import Partial, identity
from ringcore.protocols import Grads, Stats
from ringcore.step import Step
from ringcore_numpy.compiled import backward, forward
from ringcore_numpy.compiled.blas import gemm_of
from ringcore_numpy.compiled.caches import tile_of
from ringcore_numpy.compiled.kernel import Kernel
from ringcore_numpy.compiled.nonfinite import keys_reached, nonfinite, rows_reached, without
from ringcore_numpy.compiled.widen import as_compiled
from ringcore_numpy.pool import cores
from ringcore_numpy.waves import waves_of

Array = Any
Tile = tuple[int, int]
Task = Callable[[], None]

_forward = Kernel(forward.attend)
_backward = Kernel(backward.attend_backward)

_GROUP = 8
"""Tiles whose products BLAS adds up before the sum is taken out with compensation: so that costs nothing."""

_VECTORS = 64
"""Numbers: some vectors, whatever the machine and the type."""

_TASK_FLOPS = 10_000_000
"""Small problems are not cut finer: a task costs some 10 us of Python."""


def can_do(step: Step, q: Array, k: Array, v: Array) -> bool:
    """Whether these kernels know the case: masks of intervals, the same for all heads."""
    heads = step.lo.shape[-2] if step.lo.ndim > 2 else 1
    return heads == 1 and not step.dense and not step.traced and 0 not in (q.size, k.size, v.size)


def attend(q: Array, k: Array, v: Array, step: Step, into: Partial | None, tile: Tile | None) -> Partial:
    """Merge attention of q (\\*B, H, L_q, D) over k, v into ``into``, which is written to."""
    dtype = np.dtype(accumulation_dtype(np, q.dtype))
    if into is None:
        into = identity(np, (*q.shape[:-1], v.shape[-1]), dtype)
    into = Partial(*(np.require(x, requirements=("C", "A", "W")) for x in into))
    shape = _Shape.of(q, k, v, tile or tile_of(dtype.itemsize))
    scales = _scale_and_factor(q, step.scale, dtype)
    tasks: list[Task] = []
    spoilt: list[tuple[Array, Array]] = []
    for at in np.ndindex(*q.shape[:-3]):
        lo, hi = _intervals(step, at)
        bad_v = nonfinite(v[at])
        acc, m, l = (shape.by_key_head(x[at]) for x in into)  # noqa: E741
        arrays = (shape.by_key_head(q[at]), k[at], without(v[at], bad_v), lo, hi)
        arguments = (gemm_of(dtype), *map(as_compiled, arrays), *scales, acc, m, l)
        tail = (shape.height, shape.columns, _GROUP)
        kernel = _forward.of(dtype_name(q.dtype), *arguments, 0, 0, *tail)
        for first, last in shape.tasks(q.shape[-1] + v.shape[-1]):
            call = bind(kernel, *arguments, first, last, *tail)
            tasks.append(bind(_counted, step, q.shape[-1] + v.shape[-1], call))
        if bad_v is not None:
            spoilt.append((acc, rows_reached(lo, hi, bad_v)[:, None]))
    tasks.reverse()  # under a causal mask the last take longest: begun first, no core waits for them
    cores.run(tasks, shape.flops(q.shape[-1] + v.shape[-1]) * math.prod(q.shape[:-3]))
    for acc, reached in spoilt:
        np.copyto(acc, np.nan, where=reached)
    return into


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
    tile: Tile | None,
) -> Grads:
    """Add this step's gradients of the inputs in ``wrt`` to those in ``into``, which are written to."""
    dtype = np.dtype(accumulation_dtype(np, q.dtype))
    grads = {
        name: np.require(into[name], requirements=("C", "A", "W"))
        if name in into
        else np.zeros(x.shape, dtype)
        for name, x in (("q", q), ("k", k), ("v", v))
        if name in wrt
    }
    m, inverse = rebuilding(np, stats)
    shape = _Shape.of(q, k, v, tile or tile_of(dtype.itemsize))
    scales, width = _scale_and_factor(q, step.scale, dtype), products_width(wrt, q.shape[-1], v.shape[-1])
    waves = waves_of(shape.blocks, shape.k_tiles, k.shape[-3] * math.prod(q.shape[:-3]))
    in_wave: list[list[Task]] = [[] for _ in range(waves)]
    spoilt: list[tuple[Array, Array]] = []
    for at in np.ndindex(*q.shape[:-3]):
        lo, hi = _intervals(step, at)
        rows = [shape.by_key_head(x[at]) for x in (q, dout, m, inverse, delta)]
        finite_k, reached = _finite_operands(rows, k[at], lo, hi)
        arguments = (
            gemm_of(dtype),
            *map(as_compiled, (*rows, k[at], finite_k, v[at], lo, hi)),
            *scales,
            shape.by_key_head(grads["q"][at]) if "q" in grads else np.empty((0, 0, 0, 0), dtype),
            *(grads[name][at] if name in grads else np.empty((0, 0, 0), dtype) for name in ("k", "v")),
            backward.Wanted(*(name in grads for name in ("q", "k", "v"))),
        )
        tail = (shape.height, shape.columns, _GROUP)
        kernel = _backward.of(dtype_name(q.dtype), *arguments, backward.Share(0, 0, 0, 1), *tail)
        for wave, tasks in enumerate(in_wave):
            for head in range(shape.G):
                for task in range(waves):
                    share = backward.Share(head, (task + wave) % waves, task, waves)
                    tasks.append(bind(_counted, step, width, bind(kernel, *arguments, share, *tail)))
        if reached is not None and "v" in grads:
            spoilt.append((grads["v"][at], reached))
    for tasks in in_wave:
        cores.run(tasks, shape.flops(width) * math.prod(q.shape[:-3]) // waves)
    for dv, reached in spoilt:
        np.copyto(dv, np.nan, where=reached)
    return grads


def _finite_operands(rows: list[Array], k: Array, lo: Array, hi: Array) -> tuple[Array, Array | None]:
    """Take NaN and inf out of q, dout and k, and put NaN where the kernel carries it on to what they reach.

    ``rows`` are q, dout, m, inverse and delta, (N, R, L_q, ..); they are exchanged. Returns the keys that
    gradients of scores may be multiplied with (the scores need them as they are), and which dV must become
    NaN in the end: a row of weights that a bad q reaches is NaN throughout, and so is a row of their
    gradients by a bad dout, but in dV this reaches its own column only.
    """
    q, dout, m, inverse, delta = rows
    bad_q, bad_dout, bad_k = nonfinite(q), nonfinite(dout), nonfinite(k)
    if bad_q is not None:
        inverse = np.where(bad_q.any(axis=-1), np.nan, inverse).astype(m.dtype)
    if bad_dout is not None:
        delta = np.where(bad_dout.any(axis=-1), np.nan, delta).astype(m.dtype)
    rows[:] = without(q, bad_q), without(dout, bad_dout), m, inverse, delta
    seen = None if bad_dout is None else keys_reached(lo, hi, bad_dout.any(axis=1), k.shape[1])
    return without(k, bad_k), seen


@dataclass(frozen=True)
class _Shape:
    """Sizes of one batch row, and how it is cut."""

    G: int
    R: int
    L_q: int
    L_k: int
    height: int
    columns: int

    @classmethod
    def of(cls, q: Array, k: Array, v: Array, tile: Tile) -> _Shape:
        (H, L_q), (G, L_k) = q.shape[-3:-1], k.shape[-3:-1]
        R = H // G
        return cls(G, R, L_q, L_k, _even(L_q, max(1, tile[0] // R)), _even(L_k, tile[1]))

    @property
    def blocks(self) -> int:
        """Blocks of queries of a key head, each with its R query heads."""
        return -(-self.L_q // self.height)

    @property
    def k_tiles(self) -> int:
        return -(-self.L_k // self.columns)

    def flops(self, width: int) -> int:
        """Operations of products that need ``width`` multiply-adds for a score."""
        return 2 * self.G * self.R * self.L_q * self.L_k * width

    def tasks(self, width: int) -> Iterator[tuple[int, int]]:
        """First and last of the blocks, counted through all heads, that are worth a task."""
        blocks = self.G * self.blocks
        each = max(1, _TASK_FLOPS * blocks // self.flops(width))
        for first in range(0, blocks, each):
            yield first, min(first + each, blocks)

    def by_key_head(self, x: Array) -> Array:
        """An array of the query side, (H, L_q, ..), as (G, R, L_q, ..)."""
        return x.reshape(self.G, self.R, *x.shape[1:])


def _even(length: int, most: int) -> int:
    """Size of parts of at most ``most``, about even, in whole vectors: BLAS is slow at odd ends."""
    even = -(-length // -(-length // most))
    return min(most, -(-even // _VECTORS) * _VECTORS)


def _counted(step: Step, width: int, kernel: Callable[[], tuple[int, int]]) -> None:
    """Call a kernel, report what it has computed; its products need ``width`` multiply-adds for a score."""
    tiles, scores = kernel()
    step.meter.add(tiles=tiles, scores=scores, flops=2 * scores * width)


def _intervals(step: Step, batch: tuple[int, ...]) -> tuple[Array, Array]:
    """Those of a batch row, (n, L_q)."""
    one = step.only(batch, slice(0, 1)) if step.lo.ndim > 2 else step
    return tuple(x.reshape(x.shape[0], x.shape[-1]).astype(np.int64, copy=False) for x in (one.lo, one.hi))


def _scale_and_factor(q: Array, scale: float, dtype: Any) -> tuple[Any, Any]:
    """Scores are ``factor * ((scale * q) @ k^T)``: the factor is 1, but where scale * q would overflow."""
    with np.errstate(over="ignore"):
        if abs(scale) > 1:
            largest = max(
                float(np.fmax.reduce(q, axis=None)), -float(np.fmin.reduce(q, axis=None))
            )  # but NaN
            if largest * abs(scale) > np.finfo(dtype).max:
                return dtype.type(1), dtype.type(scale)
        return dtype.type(scale), dtype.type(1)
