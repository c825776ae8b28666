"""The generic kernels, under every array library, against dense attention in extended precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcore as rc
import ringcore.guard
from ringcore.block import GenericBackend, attend, attend_backward
from ringcore.layout import Layout
from ringcore.partial import Partial, finish, identity
from ringcore.protocols import ArraySpec, Backend, Grads, Stats
from ringcore.step import Step
from ringcore.testing.arrays import from_numpy
from ringcore.testing.drawn_mask import And, Call, DrawnMask, Not
from ringcore.testing.oracle import Results
from tests.core.kernels import Case, cases, check, check_only_what_is_asked_for, solve
from tests.libraries import LIBRARIES, Library
from tests.profiles import examples

TILES = [(3, 4), (1, 1), (5, 2), (256, 256)]


@settings(max_examples=examples(150))
@given(data=st.data())
def test_forward_and_backward_are_exact(xp: Library, data: st.DataObject) -> None:
    few = xp.name == "jax"
    case = data.draw(cases(few_shapes=few))
    check(case, solve(case, GenericBackend((6, 6) if few else data.draw(st.sampled_from(TILES))), xp))


@settings(max_examples=examples(100))
@given(data=st.data())
def test_a_nan_reaches_the_rows_that_see_it_and_no_others(xp: Library, data: st.DataObject) -> None:
    few = xp.name == "jax"
    case = data.draw(cases(few_shapes=few, poison=True))
    check(case, solve(case, GenericBackend((6, 6) if few else data.draw(st.sampled_from(TILES))), xp))


# Of the few shapes that JAX need not compile anew; both key shards are alike.
HALVES = Layout.striped(length=12, ranks=2)
CAUSAL = Case(Layout.contiguous(length=6, ranks=1), HALVES, DrawnMask(Call("causal")))


@pytest.mark.parametrize(
    ("library", "dtype"),
    [("numpy", "float16"), ("torch", "float16"), ("torch", "bfloat16"), ("jax", "bfloat16")],
)
def test_sixteen_bit_inputs_accumulate_in_float32(library: str, dtype: str) -> None:
    case = replace(CAUSAL, dtype=dtype, spread=10.0)
    check(case, solve(case, GenericBackend((6, 6)), LIBRARIES[library]()))


class Jitted:
    """The generic kernels, compiled once, with the intervals as arguments: as under shard_map."""

    def __init__(self, case: Case) -> None:
        import jax
        import jax.numpy as jnp

        self.step = Step(None, None, None, None, case.scale, traced=True)
        self.asarray = jnp.asarray
        self.wide = jnp.float64 if case.dtype == "float64" else jnp.float32
        self.forward = jax.jit(self._forward)
        self.backward = jax.jit(self._backward)

    def with_(self, numbers: tuple[Any, ...]) -> Step:
        return replace(self.step, **dict(zip(("lo", "hi", "q_pos", "k_pos"), numbers, strict=True)))

    def numbers(self, step: Step) -> tuple[Any, ...]:
        return tuple(self.asarray(x) for x in (step.lo, step.hi, step.q_pos, step.k_pos))

    def attend(self, q: Any, k: Any, v: Any, step: Step, into: Partial | None) -> Partial:
        if into is None:
            into = identity(array_namespace(q), (*q.shape[:-1], v.shape[-1]), self.wide)
        return self.forward(q, k, v, self.numbers(step), into)

    def _forward(self, q: Any, k: Any, v: Any, numbers: Any, into: Partial) -> Partial:
        return attend(q, k, v, self.with_(numbers), into, (3, 3))

    def _backward(self, q: Any, k: Any, v: Any, dout: Any, stats: Stats, delta: Any, numbers: Any) -> Grads:
        step, every = self.with_(numbers), ("q", "k", "v")
        return attend_backward(q, k, v, dout, stats, delta, step, every, {}, (3, 3))

    def attend_backward(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        dout: Any,
        stats: Any,
        delta: Any,
        step: Step,
        wrt: Any,
        into: Any,
    ) -> Grads:
        found = self.backward(q, k, v, dout, stats, delta, self.numbers(step))
        return {name: x + into[name] if name in into else x for name, x in found.items()}


@pytest.mark.parametrize(
    "change",
    [
        {"mask": DrawnMask(And(Call("documents", ((2, 3, 7),)), Not(Call("window", (0, 0)))))},
        {
            "mask": DrawnMask(Call("documents", (((4, 8), (5, 0)),))),
            "batch": (2,),
            "dtype": "float64",
            "spread": 1e2,
        },
    ],
    ids=["float32", "float64"],
)
def test_kernels_trace(change: dict[str, Any]) -> None:
    pytest.importorskip("jax", reason="jax is not installed")
    case = replace(CAUSAL, **change)
    kernels = Jitted(case)
    check(case, solve(case, kernels, LIBRARIES["jax"]()))
    assert kernels.forward._cache_size() == kernels.backward._cache_size() == 1, "traced once, run twice"


def test_a_traced_kernel_keeps_nan_out_of_rows_that_do_not_see_it() -> None:
    """At least where nobody in the tile sees it; here the bad key is nobody's."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as jnp

    case = replace(CAUSAL, mask=DrawnMask(And(Call("causal"), Not(Call("keys", (3, 4))))))
    step = replace(case.step(1, rc.Meter()), traced=True)  # local key 1 is global 3
    values = case.values()
    k, v = (np.array(values[name][..., HALVES.positions(1), :]) for name in "kv")
    clean = [jnp.asarray(x) for x in (values["q"], k, v)]
    k[..., 1, :], v[..., 1, :] = np.nan, np.inf
    dirty = [jnp.asarray(x) for x in (values["q"], k, v)]
    run = jax.jit(lambda q, k, v: attend(q, k, v, step, None, (6, 6)))
    for a, b in zip(run(*dirty), run(*clean), strict=True):
        assert np.array_equal(a, b)


def test_meter_counts_the_tiles_that_were_computed() -> None:
    """Causal, 12 x 12 in tiles of 3 x 3 over both shards: those with nothing to see are skipped."""
    lengths = {"q_layout": Layout.contiguous(length=12, ranks=1), "k_layout": Layout.from_lengths([3, 9])}
    case, meter = replace(CAUSAL, batch=(2,), H=4, G=2, **lengths), rc.Meter()
    solve(case, GenericBackend((3, 3)), LIBRARIES["numpy"](), meter)
    tiles = 10  # on and below the diagonal
    rows = 2 * 4 * 9  # batch rows x heads x pairs in a tile
    assert meter.tiles == 2 * tiles  # forward and backward
    assert meter.scores == 2 * tiles * rows
    assert meter.flops == tiles * rows * 2 * ((3 + 2) + (3 * 3 + 2 * 2))


def test_only_the_gradients_asked_for_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the FLOPs that the meter tells are those of the products that were made."""
    made = 0

    def counting(a: Any, b: Any) -> Any:
        nonlocal made
        product = np.matmul(a, b)
        made += 2 * product.size * a.shape[-1]
        return product

    for module in (ringcore.block, ringcore.guard):
        monkeypatch.setattr(module, "matmul", counting)
    told = check_only_what_is_asked_for(GenericBackend((6, 3)))
    assert made == told


def test_grads_add_to_what_is_there_and_rows_without_keys_stay_zero(xp: Library) -> None:
    case = replace(CAUSAL, mask=DrawnMask(Call("causal", (-4,))))  # four rows see nothing, two see key 0
    backend, step = GenericBackend((6, 6)), case.step(0, rc.Meter())
    values = case.values()
    k, v = (values[name][..., HALVES.positions(0), :] for name in "kv")
    arrays = [from_numpy(xp.xp, x, "float32") for x in (values["q"], k, v, values["dout"])]
    q, k, v, dout = arrays
    partial = backend.attend(q, k, v, step, None)
    out, lse = finish(xp.xp, partial)
    delta = xp.xp.sum(dout * out, axis=-1)
    stats = Stats(partial.m, partial.l)
    plain = backend.attend_backward(q, k, v, out, dout, stats, delta, step, ("q", "k", "v"), {})
    ones = {name: xp.xp.ones_like(x) for name, x in (("q", q), ("v", v))}
    added = backend.attend_backward(q, k, v, None, dout, stats, delta, step, ("v", "k", "q"), ones)
    for name, one in (("q", 1), ("k", 0), ("v", 1)):
        assert np.allclose(xp.numpy(added[name]), one + xp.numpy(plain[name]), rtol=1e-6, atol=1e-6)
    assert np.all(xp.numpy(plain["q"])[..., :4, :] == 0) and np.all(xp.numpy(out)[..., :4, :] == 0)
    assert np.all(xp.numpy(lse)[..., :4] == -np.inf)
    assert np.all(np.isfinite(xp.numpy(lse)[..., 4:]))


@pytest.mark.parametrize(("lengths", "batch"), [((0, 12), ()), ((6, 0), (2,)), ((6, 12), (0,))], ids=str)
def test_empty_shards_and_batches(xp: Library, lengths: tuple[int, int], batch: tuple[int, ...]) -> None:
    L_q, S_k = lengths
    layouts = Layout.contiguous(length=L_q, ranks=1), Layout.contiguous(length=S_k, ranks=2)
    case = Case(*layouts, DrawnMask(None), batch)
    got = solve(case, GenericBackend((6, 6)), xp)
    assert got.out.shape == (*batch, 2, L_q, 2) and got.dk.shape == (*batch, 1, S_k, 3)
    check(case, got)


def test_the_generic_backend_keeps_the_protocol_and_packs_through_the_host(xp: Library) -> None:
    backend = GenericBackend()
    assert isinstance(backend, Backend) and backend.name == "generic"
    x, y = xp.asarray(np.arange(6.0).reshape(2, 3)), xp.asarray(np.arange(3, dtype=np.float32))
    wire = backend.pack([x, y], "host")
    there = backend.blank([ArraySpec((2, 3), x.dtype), ArraySpec((3,), y.dtype)], "host")
    there.buffer[:] = wire.buffer
    for a, b in zip(backend.unpack(there, x), (x, y), strict=True):
        assert type(a) is type(x) and a.dtype == b.dtype
        assert np.array_equal(xp.numpy(a), xp.numpy(b))


def test_the_check_can_fail() -> None:
    """A kernel that forgets the scale, one that drops a key, one off by a few units in the last place."""
    lib, backend = LIBRARIES["numpy"](), GenericBackend((4, 4))
    good = solve(CAUSAL, backend, lib)
    check(CAUSAL, good)
    wrong = [
        solve(replace(CAUSAL, scale=0.71), backend, lib),
        solve(replace(CAUSAL, mask=DrawnMask(Call("causal", (-1,)))), backend, lib),
        Results(*(x * np.float32(1 + 3e-5) for x in good)),
    ]
    for results in wrong:
        with pytest.raises(AssertionError, match="must be within"):
            check(CAUSAL, results)
