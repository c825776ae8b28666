"""Contract, line 1: the error of every element is within its bound, and does not grow with P."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ringcore_numpy import NumpyBackend

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.partial import Partial, finish
from ringcore.testing import (
    Call,
    DrawnMask,
    Results,
    assert_occurred,
    check_attention,
    check_no_growth,
    solve,
)
from tests.contract.problems import (
    CHOICES,
    NUMPY_KERNELS,
    Changed,
    Values,
    for_all,
    kernels,
    plain_numpy,
    problems,
    variant,
)

# ------------------------------------------------------------------ every element


def test_line_01_every_element_errs_by_at_most_8_u_cond(xp):
    turn = iter(range(1 << 30))

    def check(problem):
        choice = kernels(xp)
        check_attention(problem, solve(problem, backend=choice[next(turn) % len(choice)]))

    counted = for_all(xp, problems(xp), check, count=100)
    if xp.name == "numpy":
        assert_occurred(counted, ["GQA", "P > S", "empty shard", "side=kv", "side=q", "way=direct"])


# ------------------------------------------------------------------ no growth


def off_centre(values: Values) -> None:
    """Values whose mean is far from 0: their sums do not cancel, so any bias shows."""
    values["v"] += 3.0


PINNED = {
    "causal": (DrawnMask(Call("causal")), None),
    "full": (DrawnMask(), None),
    "window": (DrawnMask(Call("window", (40, 25))), None),
    "off centre": (DrawnMask(), off_centre),
}
RANKS = (1, 2, 4, 8, 16)


def pinned(name: str, logits: float, S: int = 160) -> Changed:
    mask, change = PINNED[name]
    layout = rc.Layout.contiguous(length=S, ranks=1)
    return Changed(
        xp=np, q_layout=layout, mask=mask, change=change, spread=logits,
        dtype="float32", heads=(2, 1), D=32, E=32, seed=20,
    )  # fmt: skip


def spread_over(problem: Changed, ranks: int, turn: int) -> Changed:
    """The problem on so many ranks; layout, side and way take turns."""
    make = (rc.Layout.contiguous, rc.Layout.zigzag, rc.Layout.striped)[turn % 3]
    layout = make(length=problem.S_q, ranks=ranks)
    side, way = CHOICES[turn % 4]
    return variant(problem, q_layout=layout, k_layout=layout, side=side, way=way)


@pytest.mark.parametrize("name", PINNED)
def test_line_01_the_error_does_not_grow_with_the_ring(name):
    for turn, logits in enumerate((1.0, 10.0, 100.0)):
        base = pinned(name, logits)
        base.reference, base.conditions, base.dense  # noqa: B018 - computed once, for all P
        for place, ranks in enumerate(RANKS):
            problem = spread_over(base, ranks, turn + place)
            kernel = (NumpyBackend, plain_numpy)[(turn + place) % 2]
            check_no_growth(problem, solve(problem, backend=kernel))
    problem = spread_over(base, 16, 0)
    check_no_growth(problem, solve(problem, backend=GenericBackend))


def test_line_01_nor_where_the_weights_are_nearly_equal():
    """Small logits: what a rounded lse does to every weight of a row is not hidden by errors of scores."""
    base = pinned("causal", 0.1)
    for ranks in (1, 2, 8):
        problem = spread_over(base, ranks, ranks)
        check_no_growth(problem, solve(problem))


def test_line_01_the_error_of_a_long_sequence_does_not_grow_either():
    base = pinned("causal", 10.0, S=600)
    for ranks in (1, 16):
        problem = spread_over(base, ranks, ranks)
        check_no_growth(problem, solve(problem))


# ------------------------------------------------------------------ the tests see what they are for


class RoundedLse(GenericBackend):
    """Passes (out, lse) from hop to hop, as many ring libraries do, instead of (acc, m, l)."""

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Partial | None) -> Partial:
        out, lse = finish(np, super().attend(q, k, v, step, into))
        seen = np.isfinite(lse)
        return Partial(out, lse, np.where(seen, np.ones_like(lse), np.zeros_like(lse)))


def test_line_01_a_merge_of_rounded_lse_is_caught():
    problem = spread_over(pinned("full", 1.0), 26, 0)
    check_no_growth(problem, solve(problem, backend=GenericBackend))
    with pytest.raises(AssertionError, match="must not grow"):
        check_no_growth(problem, solve(problem, backend=RoundedLse))


def test_line_01_a_backward_pass_from_a_rounded_lse_is_caught():
    """Weights as exp(s - lse) instead of exp(s - m) / l: worse even on one rank."""
    problem = pinned("causal", 0.1)
    q, k, v, dout, dlse = problem.shards(0)
    options = problem.options(0)
    _, lse, saved = rc.attention(q, k, v, return_lse=True, return_residuals=True, **options)
    for stats, sound in ((saved.stats, True), ((lse, np.ones_like(lse)), False)):
        grads = rc.attention_backward(q, k, v, saved.out, stats, dout, dlse=dlse, **options)
        results = [Results(None, None, *grads)]
        if sound:
            check_no_growth(problem, results)
        else:
            with pytest.raises(AssertionError, match="must not grow"):
                check_no_growth(problem, results)


class HalfPrecision(GenericBackend):
    """Rounds the weighted sums to float16, as a kernel for 16-bit inputs might."""

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Partial | None) -> Partial:
        acc, m, l = super().attend(q, k, v, step, into)  # noqa: E741
        return Partial(acc.astype(np.float16).astype(np.float32), m, l)


def test_line_01_a_product_in_half_precision_is_caught():
    problem = spread_over(pinned("causal", 1.0), 4, 0)
    with pytest.raises(AssertionError, match="must be within 8 u cond"):
        check_attention(problem, solve(problem, backend=HalfPrecision))


@pytest.mark.parametrize("kernel", NUMPY_KERNELS)
@pytest.mark.parametrize("value", [0.3, 0.7, 1 / 3])
def test_line_01_error_of_equal_terms_does_not_grow_with_the_sequence(kernel, value):
    """All roundings go the same way: n/4 units for the n terms of a product, and no more for more tiles."""
    value, backend = np.float32(value), kernel((64, 128))
    errors = []
    for S in (128, 1024, 16384):
        few, many = np.zeros((2, 1), "float32"), np.zeros((S, 1), "float32")
        out, lse = rc.attention(few, many, many + value, return_lse=True, backend=backend)
        weights, pullback = rc.attention_vjp(many, few, few + value, backend=backend)
        (dv,) = pullback(np.full_like(weights, value), wrt=("v",))
        right = float(value)
        computed = float(out[0, 0]) / right, float(dv[0, 0]) / (right * S / 2), float(lse[0]) / np.log(S)
        errors.append([x - 1 for x in computed])
    units = np.abs(errors) * 2**24
    assert (units <= 8 + 128 / 4).all(), units
    assert (units[1:] <= units[0] + 2).all(), units
