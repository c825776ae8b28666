"""Contract, line 4: NaN and inf stay where they belong."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ringcore as rc
from ringcore.testing import (
    And,
    Call,
    DrawnMask,
    Not,
    Problem,
    assert_occurred,
    check_attention,
    solve,
)
from tests.contract.problems import (
    CHOICES,
    FEW,
    JAX,
    Changed,
    bits,
    for_all,
    kernels,
    layouts_of,
    problems,
    variant,
    whole,
)
from tests.libraries import LIBRARIES

S = 21
SOME_RANKS = {"numpy": range(1, 9), "array-api-strict": (1, 6), "torch": (3, 8)}
HIDDEN = {  # masks, and the keys that no query sees under them
    "keys": (DrawnMask(Call("keys", (3, 15))), [0, 1, 2, *range(15, S)]),
    "one key": (DrawnMask(And(Call("causal"), Not(Call("keys", (7, 8))))), [7]),
    "documents": (DrawnMask(Call("documents", ((4, 9),))), [*range(13, S)]),
    "padding": (DrawnMask(Call("padding", ((12, 5),))), [*range(12, S)]),
    "shifted": (DrawnMask(Call("causal", (-5,))), [*range(S - 5, S)]),
}


def spoil_keys(where):
    """NaN and both infinities in whole rows of K and V."""

    def change(values):
        for turn, key in enumerate(where):
            values["k"][..., key, :] = (math.nan, math.inf, -math.inf)[turn % 3]
            values["v"][..., key, :] = (math.inf, math.nan, -math.inf)[turn % 3]

    return change


def problem_of(xp, name: str, layout: rc.Layout, turn: int) -> Problem:
    side, way = CHOICES[turn % 4]
    return Problem(
        xp=xp, q_layout=layout, mask=HIDDEN[name][0], batch=(2,), heads=(2, 1), D=3, E=2,
        dtype="float32", side=side, way=way, tile=(None, (4, 4), (5, 3))[turn % 3], seed=turn,
    )  # fmt: skip


@pytest.mark.parametrize("library", FEW)
@pytest.mark.parametrize("name", HIDDEN)
def test_line_04_a_key_that_no_query_sees_changes_no_bit(library, name):
    xp = LIBRARIES[library]()
    for ranks in SOME_RANKS[library]:
        kernel = kernels(xp)[ranks // 2 % len(kernels(xp))]
        layouts = layouts_of(S, ranks)
        clean = problem_of(xp.xp, name, layouts[ranks % len(layouts)], ranks)
        spoiled = variant(clean, change=spoil_keys(HIDDEN[name][1]))
        for got, want in zip(whole(spoiled, kernel), whole(clean, kernel), strict=True):
            assert bits(got, xp) == bits(want, xp)


def test_line_04_a_key_that_no_query_sees_changes_no_bit_on_jax():
    xp = LIBRARIES["jax"]()
    clean = variant(JAX[3], poison=None)
    for side in ("kv", "q"):
        clean = variant(clean, side=side)
        spoiled = variant(clean, change=spoil_keys([10, 11, 19]))
        for got, want in zip(whole(spoiled), whole(clean), strict=True):
            assert bits(got, xp) == bits(want, xp)


def test_line_04_exactly_the_rows_that_see_it(xp):
    """A NaN or inf anywhere: rows it cannot reach are right, and a NaN in a value shows where it is seen."""

    def check(problem):
        kernel = kernels(xp)[problem.seed % len(kernels(xp))]
        check_attention(problem, solve(problem, backend=kernel))

    counted = for_all(xp, problems(xp, poison=True), check, count=80)
    if xp.name == "numpy":
        assert_occurred(counted, ["GQA", "per-row mask", "two layouts", "query that sees no key"])


def rows_reached(name: str, where: int, visible: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of each result that must be non-finite once a whole row of an input is NaN, (H, S)."""
    hit = np.zeros(visible.shape[-2:][name in "kv"], bool)
    hit[where] = True
    by_query = np.any(visible & hit, axis=-1) if name in "kv" else np.any(visible, axis=-1) & hit
    by_key = np.any(visible & by_query[..., None], axis=-2).any(axis=0, keepdims=True)
    reached = {"dq": by_query, "dk": by_key}
    if name in "qkv":
        reached["out"] = by_query
    if name in "qk":
        reached["lse"] = by_query
    if name != "v":
        reached["dv"] = by_key
    return reached


@pytest.mark.parametrize("library", FEW)
@pytest.mark.parametrize("name", ["q", "k", "v", "dout"])
def test_line_04_nan_shows_in_every_row_that_it_reaches_and_in_no_other(library, name):
    xp = LIBRARIES[library]()
    where = 8

    def spoil(values):
        values[name][..., where, :] = math.nan

    mask = DrawnMask(And(Call("window", (4, 2)), Not(Call("keys", (10, 11)))))
    for ranks in SOME_RANKS[library]:
        side, way = CHOICES[ranks % 4]
        layouts = layouts_of(S, ranks)
        problem = Changed(
            xp=xp.xp, q_layout=layouts[ranks % len(layouts)], mask=mask, heads=(2, 1), D=3, E=2, side=side,
            way=way, tile=(None, (4, 4), (5, 3))[ranks % 3], change=spoil, with_dlse=False,
        )  # fmt: skip
        reached = rows_reached(name, where, problem.visible)
        for kernel in kernels(xp):
            got = whole(problem, kernel)
            for result in ("out", "lse", "dq", "dk", "dv"):
                values = xp.numpy(getattr(got, result))
                bad = ~np.isfinite(values) if result == "lse" else np.any(~np.isfinite(values), axis=-1)
                assert np.array_equal(bad, reached.get(result, np.zeros_like(bad))), (result, problem)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_line_04_an_infinite_value_shows_where_it_is_seen_and_nowhere_else(value):
    def spoil(values):
        values["v"][..., 6, 0] = value

    for ranks in (1, 3, 8):
        layout = rc.Layout.zigzag(length=S, ranks=ranks)
        problem = Changed(xp=np, q_layout=layout, mask=DrawnMask(Call("causal")), change=spoil)
        for kernel in kernels("numpy"):
            out = whole(problem, kernel).out[0]
            assert not np.any(np.isfinite(out[6:, 0]))
            assert np.all(np.isfinite(out[:6]))
            assert np.all(np.isfinite(out[:, 1]))
