"""One attention call, validated: arrays in canonical form, layouts, mask, who needs what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
from array_api_compat import array_namespace

from ringcore import registry
from ringcore.agree import agree
from ringcore.arguments import (
    check_arrays,
    check_helpers,
    check_layout,
    check_mask,
    check_shapes,
    finite,
)
from ringcore.dtypes import accumulation_name, dtype_name
from ringcore.intervals import Intervals
from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.meter import Meter
from ringcore.patterns import full
from ringcore.plan import Plan
from ringcore.protocols import Array, Backend
from ringcore.ring import Ring
from ringcore.schedule import WAYS
from ringcore.step import Step, default_scale, local_step, lower

SIDES = ("kv", "q")


@dataclass(frozen=True)
class Options:
    """The keyword arguments that forward and backward share, see `ringcore.attention`."""

    ring: Ring | None = None
    layout: Layout | None = None
    k_layout: Layout | None = None
    mask: Mask | None = None
    scale: float | None = None
    seq_axis: int = -2
    side: str = "auto"
    way: str = "auto"
    meter: Meter | None = None
    backend: Backend | None = None


@dataclass(frozen=True)
class Problem:
    """A validated call on this rank; all arrays are (\\*B, heads, length, dim), 2-d ones too."""

    q: Array
    k: Array
    v: Array
    ring: Ring
    backend: Backend
    q_layout: Layout
    k_layout: Layout
    mask: Mask
    scale: float
    side: str
    way: str
    meter: Meter
    seq_axis: int
    two_d: bool
    needs: np.ndarray  # bool (P, P): needs[rank, key rank]

    def canonical(self, x: Array) -> Array:
        """An array of the caller's axis order as (\\*B, heads, length, dim)."""
        return _canonical(x, self.seq_axis)

    def restored(self, x: Array) -> Array:
        """The inverse of `canonical`."""
        if self.two_d:
            return x[0, ...]
        return array_namespace(x).moveaxis(x, -2, -3) if self.seq_axis == -3 else x

    def restored_row(self, x: Array) -> Array:
        """A row statistic (\\*B, H, L_q) without the head that was added to 2-d arrays."""
        return x[0, ...] if self.two_d else x

    @cached_property
    def plan(self) -> Plan:
        """What this rank's queries see, from the descriptions alone."""
        return self.ring.plans.of(self.q_layout, self.k_layout, self.mask, self.ring.rank)

    def step(self, q_rank: int, k_rank: int) -> Step:
        """The step of one rank's queries against another's keys."""
        if q_rank == self.ring.rank:
            step = self.plan.recall(
                k_rank, lambda: self._bare_step(self.plan.positions, self.plan.seen, k_rank)
            )
        else:
            positions = self.q_layout.positions(q_rank)
            step = self._bare_step(positions, lower(self.mask, positions, self.k_layout.length), k_rank)
        return replace(step, scale=self.scale, dense=self.mask.arrays, meter=self.meter)

    def _bare_step(self, positions: np.ndarray, seen: Intervals, k_rank: int) -> Step:
        """What layouts and mask say of a step."""
        return local_step(seen, positions, self.k_layout, k_rank, 1.0, (), Meter())


def ring_of(options: Options) -> Ring:
    """The ring of a call; one rank if none is given."""
    ring = Ring() if options.ring is None else options.ring
    if not isinstance(ring, Ring):
        raise TypeError(
            f"ring must be a ringcore.Ring. Got {type(ring).__name__}. Wrap a communicator, rc.Ring(comm), "
            "or run on threads: rc.run_ranks(4, fn) calls fn(ring) on each rank."
        )
    return ring


def prepare(call: str, q: Array, k: Array, v: Array, options: Options) -> Problem:
    """Validate a call on every rank and agree on it. Collective.

    Raises
    ------
    TypeError, ValueError
        The same on every rank, before any data moves.
    """
    ring = ring_of(options)
    if options.layout is None:  # the ranks' lengths make one
        draft, lengths = agree(
            call,
            ring,
            lambda: _validate(q, k, v, ring, options),
            lambda draft: _facts(draft, options),
            lambda draft: [draft.q.shape[-2], draft.k.shape[-2]],
        )
        q_layout, k_layout = _layouts(options, cast(list[list[int]], lengths))
        problem = replace(draft, q_layout=q_layout, k_layout=k_layout)
        _, rows = agree(call, ring, lambda: _needs_row(problem), lambda _: {}, _to_hex)
    else:

        def check() -> tuple[Problem, np.ndarray]:
            problem = _validate(q, k, v, ring, options)
            return problem, _needs_row(problem)

        (problem, _), rows = agree(
            call,
            ring,
            check,
            lambda found: _facts(found[0], options),
            lambda found: _to_hex(found[1]),
            repeats=True,
        )
    problem.needs[...] = [_from_hex(row, ring.size) for row in rows]
    return problem


def _needs_row(problem: Problem) -> np.ndarray:
    """Whose keys this rank's queries see; checks what can only be checked when all lengths are known."""
    L_q, S_k = problem.q.shape[-2], problem.k_layout.length
    for array in problem.mask.arrays:
        if tuple(array.shape[-2:]) != (L_q, S_k):
            raise ValueError(
                "a dense mask must hold a row per local query and a column per key of the whole sequence. "
                f"Expected (..., {L_q}, {S_k}), got {tuple(array.shape)}. Shard its rows: "
                "layout.shard(visible, ring.rank)."
            )
    return problem.plan.needs


def _to_hex(row: np.ndarray) -> str:
    return np.packbits(row).tobytes().hex()


def _from_hex(row: object, size: int) -> np.ndarray:
    packed = np.frombuffer(bytes.fromhex(str(row)), np.uint8)
    return np.unpackbits(packed, count=size).astype(bool)


def _validate(q: Array, k: Array, v: Array, ring: Ring, options: Options) -> Problem:
    if options.seq_axis not in (-2, -3):
        raise ValueError(
            f"seq_axis must be -2 for (*B, H, L, D) or -3 for (*B, L, H, D). Got {options.seq_axis!r}."
        )
    check_arrays(q, k, v)
    two_d = q.ndim == 2
    q, k, v = (_canonical(x, options.seq_axis) for x in (q, k, v))
    check_shapes(q, k, v)
    check_layout("layout", options.layout, q.shape[-2], ring, False)
    k_layout = options.layout if options.k_layout is None else options.k_layout
    check_layout("k_layout", k_layout, k.shape[-2], ring, keys_follow=options.k_layout is None)
    scale = default_scale(q.shape[-1]) if options.scale is None else options.scale
    scale = finite("scale", scale, accumulation_name(q.dtype))
    mask = full() if options.mask is None else options.mask
    check_mask(mask, q)
    check_helpers(options.meter, options.backend)
    for name, value, allowed in (("side", options.side, SIDES), ("way", options.way, WAYS)):
        if value not in ("auto", *allowed):
            raise ValueError(f"{name} must be 'auto', {allowed[0]!r} or {allowed[1]!r}. Got {value!r}.")
    if mask.arrays and options.side == "q":
        raise ValueError(
            "a dense mask holds the rows of the queries at home, so K and V must travel. "
            "Got side='q'. Use side='kv' or 'auto'."
        )
    unknown = Layout.contiguous(length=0, ranks=1)  # until all lengths are
    q_layout = options.layout or unknown
    return Problem(
        q,
        k,
        v,
        ring,
        options.backend or registry.backend_of(q),
        q_layout,
        options.k_layout or q_layout,
        mask,
        scale,
        "kv" if mask.arrays else options.side,
        options.way,
        options.meter or Meter(),
        options.seq_axis,
        two_d,
        np.zeros((ring.size, ring.size), bool),
    )


def _facts(problem: Problem, options: Options) -> Mapping[str, str]:
    q, k, v = problem.q, problem.k, problem.v
    return {
        "array library": array_namespace(q).__name__,
        "dtype": dtype_name(q.dtype),
        "batch and head shape of q": str((*q.shape[:-2], "L_q", q.shape[-1])),
        "batch and head shape of k": str((*k.shape[:-2], "L_k", k.shape[-1])),
        "batch and head shape of v": str((*v.shape[:-2], "L_k", v.shape[-1])),
        "mask": f"{problem.mask!r} [{problem.mask.digest()}]",
        "scale": repr(problem.scale),
        "side": problem.side,
        "way": problem.way,
        "layout": repr(options.layout),
        "k_layout": repr(options.k_layout),
    }


def _layouts(options: Options, lengths: list[list[int]]) -> tuple[Layout, Layout]:
    """The layouts as given; contiguous from the ranks' lengths where none is."""
    q_layout = options.layout or Layout.from_lengths([q for q, _ in lengths])
    if options.k_layout is not None:
        return q_layout, options.k_layout
    return q_layout, options.layout or Layout.from_lengths([k for _, k in lengths])


def _canonical(x: Array, seq_axis: int) -> Array:
    if x.ndim == 2:
        return x[None, ...]
    return array_namespace(x).moveaxis(x, -3, -2) if seq_axis == -3 else x
