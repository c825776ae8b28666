"""Forward and backward pass over the ring: what travels, and what is done with it.

Either side may travel. With K and V travelling the queries' results stay at home, and in backward dK
and dV follow their blocks; with Q travelling the partials, or dQ, follow. `_choose` counts the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, cast

import numpy as np
from array_api_compat import array_namespace, device

from ringcore import driver, wire
from ringcore.driver import Arrays, Journey
from ringcore.dtypes import accumulation_dtype, accumulation_name, dtype_name
from ringcore.layout import Layout
from ringcore.partial import Partial, identity, merge
from ringcore.problem import SIDES, Problem
from ringcore.protocols import Array, ArraySpec, Grads, SharesMemory, Stats
from ringcore.schedule import WAYS, Reach, Tick, schedule

SpecsOf = Callable[[int], list[ArraySpec]]
Specs = tuple[SpecsOf, SpecsOf | None]
"""Of a block, and of the sum that follows it, if any."""


class Trip(NamedTuple):
    """The side that travels, this rank's ticks, and whether blocks are read in place on a node."""

    side: str
    ticks: tuple[Tick, ...]
    share: bool


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
    specs = {"kv": (_kv_specs(p), None), "q": (_specs_like(p.q_layout, [p.q]), partial_specs)}
    trip = _trip(p, "forward", specs)
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

    if trip.side == "kv":
        _travel(p, trip, (p.k, p.v), specs["kv"], stay, add, home)
    else:
        _travel(p, trip, (p.q,), specs["q"], follow, add, home)
    if result is None:
        shape = (*p.q.shape[:-1], p.v.shape[-1])
        return identity(xp, shape, accumulation_dtype(xp, p.q.dtype), device(p.q))
    return result


def backward(
    problem: Problem, out: Array, stats: Stats, dout: Array, delta: Array, wrt: Sequence[str]
) -> Grads:
    """Gradients of this rank's inputs named in ``wrt``, in the accumulation dtype. Collective.

    ``delta`` is rowsum(dout * out) - dlse, with the output over all keys.
    """
    p = problem
    xp = array_namespace(p.q)
    acc_dtype = accumulation_name(p.q.dtype)
    inputs = {"q": p.q, "k": p.k, "v": p.v}
    of_keys, of_queries = [n for n in wrt if n != "q"], [n for n in wrt if n == "q"]
    q_side = (p.q, dout, stats.m, stats.l, delta)
    row = (*p.q.shape[:-2], None)
    blocks = {
        "kv": _kv_specs(p),
        "q": _join(_specs_like(p.q_layout, [p.q, dout]), _specs(p.q_layout, [(row, acc_dtype)] * 3)),
    }
    sums = {
        "kv": _specs_like(p.k_layout, [inputs[n] for n in of_keys], acc_dtype) if of_keys else None,
        "q": _specs_like(p.q_layout, [p.q], acc_dtype) if of_queries else None,
    }
    specs = {name: (blocks[name], sums[name]) for name in SIDES}
    trip = _trip(p, tuple(wrt), specs)
    side = trip.side
    follow, stay = (of_keys, of_queries) if side == "kv" else (of_queries, of_keys)
    at_home: Grads = {}

    def add(a: Arrays, b: Arrays) -> Arrays:
        return tuple(_sum(x, y) for x, y in zip(a, b, strict=True))

    def home(arrays: Arrays) -> None:
        for name, x in zip(follow, arrays, strict=True):
            at_home[name] = _sum(at_home[name], x) if name in at_home else x

    def compute(owner: int, block: Arrays) -> Arrays | None:
        into = {name: at_home[name] for name in stay if name in at_home}
        rank = p.ring.rank
        if side == "kv":
            k, v = block
            step = p.step(rank, owner)
            grads = p.backend.attend_backward(p.q, k, v, out, dout, stats, delta, step, wrt, into)
        else:
            q, dout_, m, l, delta_ = block  # noqa: E741
            step = p.step(owner, rank)
            grads = p.backend.attend_backward(q, p.k, p.v, None, dout_, Stats(m, l), delta_, step, wrt, into)
        at_home.update((name, grads[name]) for name in stay)
        return tuple(grads[name] for name in follow) if follow else None

    own = (p.k, p.v) if side == "kv" else q_side
    _travel(p, trip, own, specs[side], compute, add, home)
    for name in wrt:
        if name not in at_home:
            x = inputs[name]
            at_home[name] = xp.zeros(x.shape, dtype=accumulation_dtype(xp, x.dtype), device=device(x))
    return at_home


def _sum(total: Array, x: Array) -> Array:
    """``total + x``, in place where NumPy can: both are this pass's own; a third would be a shard more."""
    if isinstance(total, np.ndarray) and total.flags.writeable:
        total += x
        return total
    return total + x


def _travel(
    p: Problem,
    trip: Trip,
    own: Arrays,
    specs: Specs,
    compute: Callable[[int, Arrays], Arrays | None],
    add: Callable[[Arrays, Arrays], Arrays],
    home: Callable[[Arrays], None],
) -> None:
    blocks, sums = specs
    journey = Journey(own, blocks, sums or blocks, compute, add, home)
    ring, mark = p.ring, p.ring.agreements.mark
    shares = trip.share and not mark and isinstance(p.q, np.ndarray)
    share = cast(SharesMemory, ring.transport) if shares else None
    driver.run(journey, trip.ticks, ring.transport, p.backend, p.q, ring.timeout, ring.worker, mark, share)


def _trip(p: Problem, what: Hashable, specs: dict[str, Specs]) -> Trip:
    """The trip of a pass, or an equal one before; ``what`` and the problem tell the specs."""

    def make() -> Trip:
        side, way = _choose(p, specs)
        blocks, sums = specs[side]
        ticks = schedule(_needs(p, side), p.ring.rank, way, with_sums=sums is not None)
        return Trip(side, ticks, _worth_sharing(p, side, blocks))

    # Who needs what follows from the plan's layouts and mask.
    shapes = tuple(tuple(x.shape) for x in (p.q, p.k, p.v))
    shares_from = getattr(p.ring.transport, "shares_from", None)
    return p.plan.recall((what, shapes, dtype_name(p.q.dtype), p.side, p.way, shares_from), make)


def _needs(p: Problem, side: str) -> np.ndarray:
    """Who computes with whose travelling block."""
    return p.needs if side == "kv" else p.needs.T


def _worth_sharing(p: Problem, side: str, blocks: SpecsOf) -> bool:
    """Whether the transport lets ranks read blocks where they lie, and enough bytes would be saved."""
    transport = p.ring.transport
    if not isinstance(transport, SharesMemory) or transport.shares_from is None:
        return False
    nodes = np.asarray(transport.nodes)
    readers = _needs(p, side) & (nodes[:, None] == nodes) & ~np.eye(p.ring.size, dtype=bool)
    saved = sum(int(n) * wire.nbytes(blocks(owner)) for owner, n in enumerate(readers.sum(axis=0)) if n)
    return 0 < saved >= transport.shares_from * p.ring.size


def _choose(p: Problem, specs: dict[str, Specs]) -> tuple[str, str]:
    """The side and the way that move the fewest bytes, among those the caller allows; K and V, ring first."""
    sides = SIDES if p.side == "auto" else (p.side,)
    ways = WAYS if p.way == "auto" else (p.way,)
    if p.ring.size == 1 or len(sides) * len(ways) == 1:
        return sides[0], ways[0]

    cost: dict[tuple[str, str], int] = {}
    for side in sides:
        blocks, sums = specs[side]
        lengths = (p.k_layout if side == "kv" else p.q_layout).counts().tolist()
        owners = {length: rank for rank, length in enumerate(lengths)}  # one for each length

        def sizes(of: SpecsOf, lengths: list[int] = lengths, owners: dict[int, int] = owners) -> np.ndarray:
            nbytes = {length: wire.nbytes(of(owner)) for length, owner in owners.items()}
            return np.asarray([nbytes[length] for length in lengths])

        reach = Reach.of(_needs(p, side))
        for way in ways:
            cost[side, way] = reach.traffic(sizes(blocks), None if sums is None else sizes(sums), way)
    return min(cost, key=lambda choice: cost[choice])


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
