"""Forward and backward pass over the ring: what travels, and what is done with it.

Either side may travel. With K and V travelling the queries' results stay at home, and in backward dK
and dV follow their blocks; with Q travelling the partials, or dQ, follow. `_choose` counts the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from array_api_compat import array_namespace, device

from ringcore import driver, wire
from ringcore.driver import Arrays, Journey
from ringcore.dtypes import accumulation_dtype, accumulation_name
from ringcore.layout import Layout
from ringcore.partial import Partial, identity, merge
from ringcore.problem import SIDES, Problem
from ringcore.protocols import Array, ArraySpec, Grads, Stats
from ringcore.schedule import WAYS, Load, schedule, traffic

SpecsOf = Callable[[int], list[ArraySpec]]


def forward(problem: Problem) -> Partial:
    """The partial of this rank's queries over all keys. Collective."""
    p = problem
    xp = array_namespace(p.q)
    acc_dtype = accumulation_name(p.q.dtype)
    rows = (*p.q.shape[:-2],)
    partial_specs = _specs(
        p.q_layout,
        [((*rows, None, p.v.shape[-1]), acc_dtype), ((*rows, None), acc_dtype), ((*rows, None), acc_dtype)],
    )
    side, way = _choose(p, {"kv": (_kv_specs(p), None), "q": (_specs_like(p.q_layout, [p.q]), partial_specs)})
    result: Partial | None = None

    def stay(owner: int, block: Arrays) -> None:
        nonlocal result
        k, v = block
        result = p.backend.attend(p.q, k, v, p.step(p.ring.rank, owner), result)

    def follow(owner: int, block: Arrays) -> Arrays:
        (q,) = block
        return tuple(p.backend.attend(q, p.k, p.v, p.step(owner, p.ring.rank), None))

    def add(a: Arrays, b: Arrays) -> Arrays:
        return tuple(merge(xp, Partial(*a), Partial(*b)))

    def home(arrays: Arrays) -> None:
        nonlocal result
        result = Partial(*(arrays if result is None else add(tuple(result), arrays)))

    with np.errstate(all="ignore"):  # inf and NaN are values here, not accidents
        if side == "kv":
            _travel(p, side, way, (p.k, p.v), _kv_specs(p), None, stay, add, home)
        else:
            _travel(p, side, way, (p.q,), _specs_like(p.q_layout, [p.q]), partial_specs, follow, add, home)
    if result is None:
        shape = (*p.q.shape[:-1], p.v.shape[-1])
        return identity(xp, shape, accumulation_dtype(xp, p.q.dtype), device(p.q))
    return result


def backward(
    problem: Problem, out: Array, stats: Stats, dout: Array, delta: Array, wrt: Sequence[str]
) -> Grads:
    """This rank's dq, dk, dv in the accumulation dtype; None for those not asked for. Collective.

    ``delta`` is rowsum(dout * out) - dlse, with the output over all keys.
    """
    p = problem
    xp = array_namespace(p.q)
    acc_dtype = accumulation_name(p.q.dtype)
    wanted_kv = [name for name in ("k", "v") if name in wrt]
    kv_sums = _specs_like(p.k_layout, [getattr(p, n) for n in wanted_kv], acc_dtype) if wanted_kv else None
    dq_sums = _specs_like(p.q_layout, [p.q], acc_dtype) if "q" in wrt else None
    q_side = (p.q, dout, stats.m, stats.l, delta)
    rows = (*p.q.shape[:-2],)
    q_blocks = _join(
        _specs_like(p.q_layout, [p.q, dout]), _specs(p.q_layout, [((*rows, None), acc_dtype)] * 3)
    )
    side, way = _choose(p, {"kv": (_kv_specs(p), kv_sums), "q": (q_blocks, dq_sums)})
    sums: dict[str, Array | None] = {"q": None, "k": None, "v": None}

    def add(a: Arrays, b: Arrays) -> Arrays:
        return tuple(x + y for x, y in zip(a, b, strict=True))

    def home_kv(arrays: Arrays) -> None:
        for name, x in zip(wanted_kv, arrays, strict=True):
            so_far = sums[name]
            sums[name] = x if so_far is None else so_far + x

    def home_q(arrays: Arrays) -> None:
        sums["q"] = arrays[0] if sums["q"] is None else sums["q"] + arrays[0]

    def compute_kv(owner: int, block: Arrays) -> Arrays | None:
        k, v = block
        into = Grads(sums["q"], None, None)
        grads = p.backend.attend_backward(
            p.q, k, v, out, dout, stats, delta, p.step(p.ring.rank, owner), into
        )
        sums["q"] = grads.dq
        return tuple({"k": grads.dk, "v": grads.dv}[name] for name in wanted_kv) if wanted_kv else None

    def compute_q(owner: int, block: Arrays) -> Arrays | None:
        q, dout_, m, l, delta_ = block  # noqa: E741
        into = Grads(None, sums["k"], sums["v"])
        grads = p.backend.attend_backward(
            q, p.k, p.v, None, dout_, Stats(m, l), delta_, p.step(owner, p.ring.rank), into
        )
        sums["k"], sums["v"] = grads.dk, grads.dv
        return (grads.dq,) if "q" in wrt else None

    with np.errstate(all="ignore"):
        if side == "kv":
            _travel(p, side, way, (p.k, p.v), _kv_specs(p), kv_sums, compute_kv, add, home_kv)
        else:
            _travel(p, side, way, q_side, q_blocks, dq_sums, compute_q, add, home_q)
    for name in wrt:
        if sums[name] is None:
            like = getattr(p, name)
            sums[name] = xp.zeros(like.shape, dtype=accumulation_dtype(xp, like.dtype), device=device(like))
    return Grads(*(sums[name] if name in wrt else None for name in ("q", "k", "v")))


def _travel(
    p: Problem,
    side: str,
    way: str,
    own: Arrays,
    block_specs: SpecsOf,
    sum_specs: SpecsOf | None,
    compute: Callable[[int, Arrays], Arrays | None],
    add: Callable[[Arrays, Arrays], Arrays],
    home: Callable[[Arrays], None],
) -> None:
    ticks = schedule(_needs(p, side), p.ring.rank, way, with_sums=sum_specs is not None)
    if p.ring.size > 1:
        own = tuple(wire.contiguous(x) for x in own)
    journey = Journey(own, block_specs, sum_specs or block_specs, compute, add, home)
    driver.run(journey, ticks, p.ring.transport, p.backend, p.q, p.ring.timeout)


def _needs(p: Problem, side: str) -> np.ndarray:
    """Who computes with whose travelling block."""
    return p.needs if side == "kv" else p.needs.T


def _choose(p: Problem, specs: dict[str, tuple[SpecsOf, SpecsOf | None]]) -> tuple[str, str]:
    """The side and the way that move the fewest bytes, among those the caller allows; K and V, ring first."""
    ranks = range(p.ring.size)

    def sizes(of: SpecsOf) -> np.ndarray:
        return np.asarray([wire.nbytes(of(owner)) for owner in ranks])

    def cost(choice: tuple[str, str]) -> int:
        side, way = choice
        blocks, sums = specs[side]
        return traffic(_needs(p, side), Load(sizes(blocks), None if sums is None else sizes(sums)), way)

    sides = SIDES if p.side == "auto" else (p.side,)
    ways = WAYS if p.way == "auto" else (p.way,)
    choices = [(side, way) for side in sides for way in ways]
    return choices[0] if len(choices) == 1 or p.ring.size == 1 else min(choices, key=cost)


def _specs(layout: Layout, shapes: Sequence[tuple[tuple[int | None, ...], object]]) -> SpecsOf:
    """Specs of a rank's arrays; None stands for that rank's length."""

    def of(owner: int) -> list[ArraySpec]:
        length = layout.count(owner)
        return [ArraySpec(tuple(length if n is None else n for n in shape), dtype) for shape, dtype in shapes]

    return of


def _specs_like(layout: Layout, arrays: Sequence[Array], dtype: object = None) -> SpecsOf:
    shapes = [((*x.shape[:-2], None, x.shape[-1]), x.dtype if dtype is None else dtype) for x in arrays]
    return _specs(layout, shapes)


def _kv_specs(p: Problem) -> SpecsOf:
    return _specs_like(p.k_layout, [p.k, p.v])


def _join(a: SpecsOf, b: SpecsOf) -> SpecsOf:
    return lambda owner: a(owner) + b(owner)
