"""The public face: what belongs to the caller, what he sees of NumPy's warnings, what may be left out."""

from __future__ import annotations

import inspect
import math
import pickle
from dataclasses import fields

import numpy as np
import pytest

import ringcore as rc
from ringcore.problem import Options
from tests.libraries import Library

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_output_is_the_callers_own(ranks: int, dtype: str) -> None:
    """What he does to it in place must not change the gradients, nor what residuals hold."""
    x = RNG.standard_normal((2, 6, 4)).astype(dtype)
    layout = rc.Layout.contiguous(length=6, ranks=ranks)

    def fn(ring: rc.Ring, spoil: bool) -> tuple[np.ndarray, ...]:
        mine = layout.shard(x, ring.rank)
        out, pullback = rc.attention_vjp(mine, mine, mine, ring=ring, layout=layout)
        again, saved = rc.attention(mine, mine, mine, ring=ring, layout=layout, return_residuals=True)
        dout = np.ones_like(out)
        if spoil:
            out += 5
            again += 5
        return (*pullback(dout), *rc.attention_backward(
            mine, mine, mine, saved.out, saved.stats, dout, ring=ring, layout=layout
        ))  # fmt: skip

    for clean, spoilt in zip(rc.run_ranks(ranks, fn, False), rc.run_ranks(ranks, fn, True), strict=True):
        for a, b in zip(clean, spoilt, strict=True):
            np.testing.assert_array_equal(a, b)


def test_numpy_set_to_raise_does_not_raise_inside() -> None:
    """Underflow and inf are values here; an exception on some ranks only would strand the others."""
    x = RNG.standard_normal((5, 4)) * 1e150
    with np.errstate(all="raise"):
        out, pullback = rc.attention_vjp(x, x, x, mask=rc.causal())
        assert all(np.isfinite(g).all() for g in pullback(np.full_like(out, 1e-300)))


@pytest.mark.parametrize("scale", [4.0, -4.0, 0.25])
def test_scores_that_are_finite_do_not_overflow_on_the_way(xp: Library, scale: float) -> None:
    """q times the scale is beyond float32, the score is 12."""
    q = np.full((2, 1), 3e38 if abs(scale) > 1 else 3e37, "float32")
    k = np.full((2, 1), 1e-38, "float32")
    v = np.asarray([[1.0], [2.0]], "float32")
    out, pullback = rc.attention_vjp(*(xp.asarray(x) for x in (q, k, v)), scale=scale, mask=rc.window(0, 0))
    np.testing.assert_array_equal(xp.numpy(out), v)
    _, dk, dv = (xp.numpy(g) for g in pullback(out))
    assert np.isfinite(dk).all() and np.array_equal(dv, v)


def test_forward_and_backward_take_the_options_that_a_problem_has() -> None:
    shared = {field.name for field in fields(Options)}
    for function, more in (
        (rc.attention, {"return_lse", "return_residuals"}),
        (rc.attention_vjp, {"return_lse"}),
        (rc.attention_backward, {"dlse", "wrt"}),
    ):
        given = inspect.signature(function).parameters.values()
        assert {p.name for p in given if p.kind is p.KEYWORD_ONLY} == shared | more


def test_only_the_gradients_asked_for_are_computed() -> None:
    x = RNG.standard_normal((1, 64, 8))
    flops = {}
    for wrt in (("v",), ("q",), ("k", "v"), ("q", "k", "v")):
        meter = rc.Meter()
        out, pullback = rc.attention_vjp(x, x, x, meter=meter)
        before = meter.flops
        assert len(pullback(out, wrt=wrt)) == len(wrt)
        flops[wrt] = (meter.flops - before) // (2 * 64 * 64 * 8)
    assert flops == {("v",): 2, ("q",): 3, ("k", "v"): 4, ("q", "k", "v"): 5}


def test_errors_survive_a_trip_between_processes() -> None:
    error = pickle.loads(pickle.dumps(rc.PeerTimeout("too late", 3)))
    assert (str(error), error.peer) == ("too late", 3)


def test_residuals_of_a_query_that_sees_nothing() -> None:
    x = RNG.standard_normal((3, 2))
    out, lse, saved = rc.attention(x, x, x, mask=~rc.full(), return_lse=True, return_residuals=True)
    assert not out.any() and (lse == -math.inf).all() and not saved.stats.l.any()
