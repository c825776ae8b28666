"""Kernel calls with the answer next to them: one q-shard, two k-shards one after the other, any backend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ringcore.dtypes import accumulation_dtype, accumulation_name
from ringcore.layout import Layout
from ringcore.meter import Meter
from ringcore.partial import Partial, finish
from ringcore.patterns import full
from ringcore.protocols import Stats
from ringcore.step import Step, local_step, lower
from ringcore.testing import oracle
from ringcore.testing.arrays import from_numpy
from ringcore.testing.assertions import assert_within_contract
from ringcore.testing.drawn_mask import Call, DrawnMask
from ringcore.testing.oracle import Results
from ringcore.testing.strategies import layouts, masks
from tests.core.steps import table_of
from tests.libraries import Library


@dataclass(frozen=True)
class Case:
    """Queries of rank 0 of ``q_layout`` against the keys of the two ranks of ``k_layout``."""

    q_layout: Layout
    k_layout: Layout
    mask: DrawnMask
    batch: tuple[int, ...] = ()
    H: int = 2
    G: int = 1
    D: int = 3
    E: int = 2
    dtype: str = "float32"
    scale: float = 0.7
    spread: float = 1.0
    seed: int = 0
    poison: tuple[str, int, float] | None = None  # input, row, NaN or inf: in the last batch row and head

    @property
    def lead(self) -> tuple[int, ...]:
        return (*self.batch, self.H)

    def values(self) -> dict[str, np.ndarray]:
        """The inputs, float64 holding what ``dtype`` can, keys in global order."""
        rng = np.random.default_rng(self.seed)
        L_q, S_k, kv = self.q_layout.count(0), self.k_layout.length, (*self.batch, self.G)
        shapes = {"q": (*self.lead, L_q, self.D), "k": (*kv, S_k, self.D), "v": (*kv, S_k, self.E),
                  "dout": (*self.lead, L_q, self.E), "dlse": (*self.lead, L_q)}  # fmt: skip
        found = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
        found["q"] *= self.spread
        if self.poison is not None:
            name, row, value = self.poison
            found[name].reshape(-1, *found[name].shape[-2:])[-1, row, -1] = value
        narrow = {name: np.asarray(from_numpy(np, x, self.dtype), np.float64) for name, x in found.items()}
        return {**narrow, "dlse": found["dlse"].astype(accumulation_name(self.dtype)).astype(np.float64)}

    def table(self) -> np.ndarray:
        """Who sees whom, bool, broadcastable to (\\*B, H, L_q, S_k)."""
        q_pos = self.q_layout.positions(0)
        seen = table_of(self.mask.visible, q_pos, np.arange(self.k_layout.length))
        if self.mask.dense is None:
            return seen
        return seen & self.mask.dense.table(self.q_layout.length, self.k_layout.length)[..., q_pos, :]

    def step(self, k_rank: int, meter: Meter, as_array: Any = np.asarray) -> Step:
        q_pos, S_k = self.q_layout.positions(0), self.k_layout.length
        dense: tuple[Any, ...] = ()
        if self.mask.dense is not None:
            dense = (as_array(self.mask.dense.table(self.q_layout.length, S_k)[..., q_pos, :]),)
        mask = full() if self.mask.mask is None else self.mask.mask
        lowered = lower(mask, q_pos, S_k)
        return local_step(lowered, q_pos, self.k_layout, k_rank, self.scale, dense, meter)

    def oracle_inputs(self) -> dict[str, Any]:
        seen = self.table()
        return {**self.values(), "visible": np.broadcast_to(seen, (*self.lead, *seen.shape[-2:]))}


@st.composite
def cases(
    draw: st.DrawFn, *, few_shapes: bool = False, poison: bool = False, dtypes: Any = ("float32", "float64")
) -> Case:
    """``few_shapes``: for libraries that compile for each one; use tiles of (6, 6)."""
    if few_shapes:
        q_layout, k_layout = Layout.contiguous(length=6, ranks=1), Layout.striped(length=12, ranks=2)
    else:
        q_layout = draw(layouts(length=st.sampled_from((9, 0, 1, 4, 14)), ranks=st.integers(1, 2)))
        k_layout = draw(layouts(length=st.sampled_from((11, 0, 1, 5, 16)), ranks=2))
    S_k = k_layout.length
    batch, H, G = ((), 2, 1) if few_shapes else draw(st.sampled_from(HEADS))
    bad = None
    if poison:
        sizes = {"q": q_layout.count(0), "k": S_k, "v": S_k, "dout": q_layout.count(0)}
        name = draw(st.sampled_from(sorted(sizes)))
        if sizes[name]:
            value = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
            bad = (name, draw(st.integers(0, sizes[name] - 1)), float(value))
    return Case(
        q_layout,
        k_layout,
        draw(masks(q_layout.length, S_k, batch, heads=H)),
        batch,
        H,
        G,
        *((3, 2) if few_shapes else draw(st.sampled_from([(3, 2), (1, 1), (2, 5)]))),
        dtype="float32" if few_shapes else draw(st.sampled_from(dtypes)),
        scale=draw(st.sampled_from([0.7, 1.0, -0.3])),
        spread=draw(st.sampled_from([1.0, 100.0, 0.0])),
        seed=draw(st.integers(0, 9999)),
        poison=bad,
    )


HEADS = [((), 1, 1), ((), 4, 2), ((2,), 3, 1), ((1, 2), 2, 2), ((2,), 6, 2)]


def solve(case: Case, backend: Any, lib: Library, meter: Meter | None = None) -> Results:
    """All results by a backend's kernels as NumPy arrays: accumulation dtype, keys in global order."""
    meter = Meter() if meter is None else meter
    values = case.values()
    wide = accumulation_name(case.dtype)

    def array(x: np.ndarray, dtype: str = case.dtype) -> Any:
        made = from_numpy(lib.xp, x, dtype)
        if lib.name == "numpy-readonly":
            made.flags.writeable = False
        return made

    q, dout = array(values["q"]), array(values["dout"])
    dlse = array(values["dlse"], wide)
    at = [case.k_layout.positions(rank) for rank in (0, 1)]
    shards = [[array(np.take(values[name], held, axis=-2)) for name in "kv"] for held in at]
    steps = [case.step(rank, meter, lib.asarray) for rank in (0, 1)]
    with np.errstate(all="ignore"):
        partial: Partial | None = None
        for (k, v), step in zip(shards, steps, strict=True):
            partial = backend.attend(q, k, v, step, partial)
        assert partial is not None
        out, lse = finish(lib.xp, partial)
        xp, dtype = lib.xp, accumulation_dtype(lib.xp, case.dtype)
        delta = xp.sum(xp.astype(dout, dtype) * out, axis=-1) - dlse
        stats, into, sides = Stats(partial.m, partial.l), {}, []
        for (k, v), step in zip(shards, steps, strict=True):
            grads = backend.attend_backward(q, k, v, out, dout, stats, delta, step, ("q", "k", "v"), into)
            into = {"q": grads["q"]}
            sides.append((lib.numpy(grads["k"]), lib.numpy(grads["v"])))
    dk, dv = (case.k_layout.unshard(list(side)) for side in zip(*sides, strict=True))
    found = Results(*(np.asarray(lib.numpy(x)) for x in (out, lse, into["q"])), dk, dv)
    assert {x.dtype.name for x in found} == {wide}
    return found


def check(case: Case, got: Results) -> None:
    """Every element within the contract's bound, but for those that a NaN or inf may reach."""
    inputs = case.oracle_inputs()
    want = oracle.reference(**inputs, scale=case.scale, dtype=np.longdouble)
    cond = oracle.conditions(**inputs, scale=case.scale)
    lost = oracle.may_be_nonfinite(**inputs)
    for name, x, y, c, bad in zip(Results._fields, got, want, cond, lost, strict=True):
        assert_within_contract(x, y, c, accumulation_name(case.dtype), name=name, where=~bad)


def same_bits(a: Results, b: Results) -> bool:
    return all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


WRT = [("q",), ("k",), ("v",), ("v", "q"), ("q", "k"), ("k", "v")]


def check_only_what_is_asked_for(backend: Any) -> int:
    """The same bits as when all is asked for, nothing more, and no product that is not needed.

    Returns the FLOPs of all calls, as the meters tell them.
    """
    total = Meter()
    case = Case(
        Layout.contiguous(length=6, ranks=1),
        Layout.striped(length=12, ranks=2),
        DrawnMask(Call("causal")),
        E=5,
    )
    values, step = case.values(), replace(case.step(0, Meter()), meter=total)
    k, v = (values[name][..., ::2, :] for name in "kv")
    q, k, v, dout = (from_numpy(np, x, "float32") for x in (values["q"], k, v, values["dout"]))
    partial = backend.attend(q, k, v, step, None)
    out, _ = finish(np, partial)
    rest = (out, dout, Stats(partial.m, partial.l), np.sum(dout * out, axis=-1))
    every = backend.attend_backward(q, k, v, *rest, step, ("q", "k", "v"), {})
    for wrt in WRT:
        meter = Meter()
        found = backend.attend_backward(q, k, v, *rest, replace(step, meter=meter), wrt, {})
        assert set(found) == set(wrt)
        assert all(found[name].tobytes() == every[name].tobytes() for name in wrt), wrt
        needs_ds = bool({"q", "k"} & set(wrt))  # scores and the sums named; dP = dout v^T for dQ and dK alone
        width = 3 + 5 * needs_ds + 3 * ("q" in wrt) + 3 * ("k" in wrt) + 5 * ("v" in wrt)
        assert meter.flops == 2 * meter.scores * width, wrt
        total.add(tiles=meter.tiles, scores=meter.scores, flops=meter.flops)
    return total.flops
