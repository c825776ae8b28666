"""One attention call, validated: arrays in canonical form, layouts, mask, who needs what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ringcore import registry
from ringcore.agree import agree
from ringcore.dtypes import dtype_name, is_supported
from ringcore.intervals import Intervals
from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.meter import Meter
from ringcore.patterns import full
from ringcore.protocols import Array, Backend
from ringcore.ring import Ring
from ringcore.schedule import WAYS
from ringcore.step import Step, default_scale, local_step, lower, needed

SIDES = ("kv", "q")


@dataclass(frozen=True)
class Options:
    """The keyword arguments of `ringcore.attention`, as given."""

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
    """A validated call on this rank; arrays are (\\*B, heads, length, dim), also where the caller's are 2-d."""

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
    def _lowered(self) -> dict[int, tuple[np.ndarray, Intervals]]:
        return {}

    def lowered(self, q_rank: int) -> tuple[np.ndarray, Intervals]:
        """Global positions of a rank's queries, and what they see, from the descriptions alone."""
        if q_rank not in self._lowered:
            self._lowered.clear()  # one at a time: they are as long as a shard
            positions = self.q_layout.positions(q_rank)
            self._lowered[q_rank] = positions, lower(self.mask, positions, self.k_layout.length)
        return self._lowered[q_rank]

    def step(self, q_rank: int, k_rank: int) -> Step:
        """The step of one rank's queries against another's keys."""
        positions, seen = self.lowered(q_rank)
        return local_step(seen, positions, self.k_layout, k_rank, self.scale, self.mask.arrays, self.meter)


def prepare(q: Array, k: Array, v: Array, given: Mapping[str, Any]) -> Problem:
    """Validate a call with these keyword arguments on every rank and agree on it. Collective.

    Raises
    ------
    TypeError, ValueError
        The same on every rank, before any data moves.
    """
    ring = given.get("ring")
    ring = Ring() if ring is None else ring
    if not isinstance(ring, Ring):
        raise TypeError(
            f"ring must be a ringcore.Ring. Got {type(ring).__name__}. Wrap a communicator: rc.Ring(comm)."
        )
    draft, lengths = agree(
        ring.transport,
        ring.timeout,
        lambda: _validate(q, k, v, ring, _options(given)),
        lambda problem: _facts(problem, Options(**given)),
        lambda problem: [problem.q.shape[-2], problem.k.shape[-2]],
    )
    q_layout, k_layout = _layouts(Options(**given), lengths)  # type: ignore[arg-type]
    needs = np.zeros((ring.size, ring.size), bool)
    problem = replace(draft, q_layout=q_layout, k_layout=k_layout, needs=needs)
    _, rows = agree(ring.transport, ring.timeout, lambda: _needs_row(problem), lambda _: {}, _to_hex)
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
    _, seen = problem.lowered(problem.ring.rank)
    return needed(seen, problem.k_layout)


def _to_hex(row: np.ndarray) -> str:
    return np.packbits(row).tobytes().hex()


def _from_hex(row: object, size: int) -> np.ndarray:
    packed = np.frombuffer(bytes.fromhex(str(row)), np.uint8)
    return np.unpackbits(packed, count=size).astype(bool)


def _options(given: Mapping[str, Any]) -> Options:
    known = [field.name for field in fields(Options)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not an option of attention. Known are {', '.join(known)}.")
    return Options(**given)


def _validate(q: Array, k: Array, v: Array, ring: Ring, options: Options) -> Problem:
    if options.seq_axis not in (-2, -3):
        raise ValueError(
            f"seq_axis must be -2 for (*B, H, L, D) or -3 for (*B, L, H, D). Got {options.seq_axis!r}."
        )
    _check_arrays(q, k, v, options.seq_axis)
    two_d = q.ndim == 2
    q, k, v = (_canonical(x, options.seq_axis) for x in (q, k, v))
    _check_shapes(q, k, v)
    for name, length, layout in (
        ("layout", q.shape[-2], options.layout),
        ("k_layout", k.shape[-2], options.k_layout or options.layout),
    ):
        _check_layout(name, layout, length, ring, options)
    scale = default_scale(q.shape[-1]) if options.scale is None else _finite("scale", options.scale)
    mask = full() if options.mask is None else options.mask
    _check_mask(mask, q)
    for name, value, allowed in (("side", options.side, SIDES), ("way", options.way, WAYS)):
        if value not in ("auto", *allowed):
            raise ValueError(f"{name} must be 'auto', {allowed[0]!r} or {allowed[1]!r}. Got {value!r}.")
    if mask.arrays and options.side == "q":
        raise ValueError(
            "a dense mask holds the rows of the queries at home, so K and V must travel. "
            "Got side='q'. Use side='kv' or 'auto'."
        )
    anything = Layout.contiguous(length=0, ranks=1)  # filled in when all lengths are known
    return Problem(
        q,
        k,
        v,
        ring,
        options.backend or registry.backend_of(q),
        anything,
        anything,
        mask,
        scale,
        "kv" if mask.arrays else options.side,
        options.way,
        options.meter or Meter(),
        options.seq_axis,
        two_d,
        np.zeros((0, 0), bool),
    )


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number. Got {value!r}.")
    return number


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


def _check_arrays(q: Array, k: Array, v: Array, seq_axis: int) -> None:
    try:
        array_namespace(q, k, v)
    except TypeError:
        kinds = ", ".join(f"{type(x).__module__}.{type(x).__qualname__}" for x in (q, k, v))
        raise TypeError(
            f"q, k and v must be arrays of one library that follows the array API standard. Got {kinds}. "
            "Convert them first, for instance with numpy.asarray."
        ) from None
    dtypes = [dtype_name(x.dtype) for x in (q, k, v)]
    if len(set(dtypes)) > 1:
        raise TypeError(
            f"q, k and v must share one dtype. Got {', '.join(dtypes)}. Nothing is promoted: cast them alike."
        )
    if not is_supported(q.dtype):
        raise TypeError(f"dtype must be float64, float32, float16 or bfloat16. Got {dtypes[0]}.")
    ndims = {x.ndim for x in (q, k, v)}
    if len(ndims) > 1 or min(ndims) < 2:
        raise ValueError(
            "q, k and v must have the same number of axes: (L, D), or (*B, H, L, D) with heads. "
            f"Got shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}."
        )


def _check_shapes(q: Array, k: Array, v: Array) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not tuple(q.shape[:-3]) == tuple(k.shape[:-3]) == tuple(v.shape[:-3]):
        raise ValueError(f"q, k and v must have equal batch axes; nothing is broadcast. Got {shapes}.")
    if k.shape[-3] != v.shape[-3] or k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same heads G and length L_k. Got {shapes}.")
    H, G = q.shape[-3], k.shape[-3]
    if G == 0 or H == 0 or H % G:
        raise ValueError(
            f"the query heads H must be a multiple of the key heads G, both >= 1. Got H={H}, G={G}: {shapes}."
        )
    if q.shape[-1] != k.shape[-1] or q.shape[-1] == 0:
        raise ValueError(f"q and k must have the same head dimension D >= 1. Got {shapes}.")


def _check_layout(name: str, layout: Layout | None, length: int, ring: Ring, options: Options) -> None:
    if layout is None:
        return
    if not isinstance(layout, Layout):
        raise TypeError(f"{name} must be a ringcore.Layout. Got {type(layout).__name__}.")
    if layout.ranks != ring.size:
        raise ValueError(
            f"{name} must be for the ranks of the ring. Expected {ring.size} ranks, got {layout!r}."
        )
    expected = layout.count(ring.rank)
    if expected != length:
        cure = "Shard with layout.shard(x, ring.rank)"
        if name == "k_layout" and options.k_layout is None:
            cure += "; where keys are another sequence than queries, pass k_layout="
        what = "q" if name == "layout" else "k and v"
        raise ValueError(
            f"{what} must hold this rank's part of {layout!r}. "
            f"Expected length {expected}, got {length}. {cure}."
        )


def _check_mask(mask: Mask, q: Array) -> None:
    if not isinstance(mask, Mask):
        raise TypeError(
            f"mask must be a ringcore mask. Got {type(mask).__name__}. "
            "Wrap a boolean array with ringcore.dense(array)."
        )
    lead = tuple(q.shape[:-2])
    for shape in (mask.lead, *(tuple(x.shape[:-2]) for x in mask.arrays)):
        try:
            fits = np.broadcast_shapes(shape, lead) == lead
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"the mask's rows must broadcast to batch and heads (*B, H) = {lead}. "
                f"Got {shape} from {mask!r}."
            )
