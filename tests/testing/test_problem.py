"""A problem is its description: what follows from it, and what its repr says."""

from __future__ import annotations

import math
from dataclasses import replace

import array_api_compat.numpy
import numpy
import numpy as np
import pytest
from hypothesis import given

import ringcore as rc
from ringcore.testing import (
    HARD_CASES,
    And,
    Call,
    DenseBits,
    DrawnMask,
    Not,
    Or,
    Poison,
    Problem,
    assert_occurred,
    evaluate,
    oracle,
    round_to,
    solve,
    to_numpy,
)
from ringcore.testing.strategies import attention_problems

NAMESPACE = {"numpy": numpy, "nan": math.nan, "inf": math.inf, "Layout": rc.Layout} | {
    cls.__name__: cls for cls in (And, Call, DenseBits, DrawnMask, Not, Or, Poison, Problem)
}
PLAIN = Problem(xp=numpy, q_layout=rc.Layout.contiguous(length=4, ranks=2))


@given(attention_problems(numpy, poison=True))
def test_the_repr_makes_the_problem_anew(problem):
    again = eval(repr(problem), NAMESPACE)
    assert repr(again) == repr(problem)
    for name, values in problem.values.items():
        np.testing.assert_array_equal(again.values[name], values)
    np.testing.assert_array_equal(again.visible, problem.visible)


def test_the_repr_says_what_is_not_the_default():
    assert repr(PLAIN) == "Problem(xp=numpy, q_layout=Layout.contiguous(length=4, ranks=2))"
    other = replace(PLAIN, mask=DrawnMask(Call("causal")), k_layout=rc.Layout.zigzag(length=3, ranks=2))
    assert "k_layout=Layout.zigzag(length=3, ranks=2), mask=DrawnMask(Call('causal'))" in repr(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k_layout": rc.Layout.contiguous(length=4, ranks=3)}, "same number of ranks. Got 2 and 3"),
        ({"heads": (3, 2)}, r"H % G == 0. Got \(3, 2\)"),
        ({"heads": None, "batch": (2,)}, "2-d arrays"),
        ({"heads": None, "seq_axis": -3}, "2-d arrays"),
    ],
)
def test_what_does_not_fit_is_an_error(change, message):
    with pytest.raises(ValueError, match=message):
        replace(PLAIN, **change)


@given(attention_problems(array_api_compat.numpy, dtypes=("float64", "float32", "float16", "bfloat16")))
def test_shards_are_the_rows_of_the_whole(problem):
    problem = replace(problem, with_dlse=True)
    for name, values in problem.values.items():
        dtype = "float32" if name == "dlse" and problem.dtype != "float64" else problem.dtype
        np.testing.assert_array_equal(round_to(values, dtype), values)
        whole = getattr(problem, name)
        assert whole.dtype.name == dtype
        assert whole.shape == problem.shape_of(name)
        layout = problem.k_layout if name in ("k", "v") else problem.q_layout
        for rank in range(problem.ranks):
            part = to_numpy(getattr(problem.shards(rank), name))
            if name == "dlse":
                want = values[..., layout.positions(rank)]
            else:
                want = values[..., layout.positions(rank), :]
                part = np.moveaxis(part, problem.seq_axis, -2)
            np.testing.assert_array_equal(part, want)


def test_arrays_of_every_library(xp):
    problem = replace(PLAIN, xp=xp.xp, dtype="float32")
    np.testing.assert_array_equal(xp.numpy(problem.q), problem.values["q"])
    assert xp.numpy(problem.shards(1).dlse).dtype == np.float32


def test_a_poison_is_where_it_says():
    problem = replace(PLAIN, heads=(4, 2), batch=(3,))
    clean = problem.values
    for name in ("q", "k", "v", "dout", "dlse"):
        everywhere = replace(problem, poison=Poison(name, 2, math.inf)).values
        once = replace(problem, poison=Poison(name, 2, math.nan, row=3)).values
        H = 2 if name in ("k", "v") else 4
        at = () if name == "dlse" else (0,)
        assert np.isinf(everywhere[name][(slice(None), slice(None), 2, *at)]).all()
        assert np.isinf(everywhere[name]).sum() == 3 * H
        assert np.isnan(once[name][(3 // H, 3 % H, 2, *at)])
        assert np.isnan(once[name]).sum() == 1
        for other in clean:
            if other != name:
                np.testing.assert_array_equal(once[other], clean[other])


def test_reference_and_condition_are_the_oracles():
    problem = replace(PLAIN, mask=DrawnMask(Call("causal")), scale=0.3, with_dlse=False)
    x = problem.values
    want = oracle.reference(x["q"], x["k"], x["v"], x["dout"], None, oracle.causal(), 0.3)
    for a, b in zip(problem.reference, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert problem.dense.out.dtype == np.float64
    assert replace(problem, dtype="float16").dense.out.dtype == np.float32


def test_spread_is_a_factor_of_the_scores():
    wide = replace(PLAIN, spread=10.0)
    np.testing.assert_allclose(wide.values["q"], 10 * PLAIN.values["q"])
    np.testing.assert_array_equal(wide.values["k"], PLAIN.values["k"])


def test_fill_is_every_number():
    equal = replace(PLAIN, fill=0.3, spread=10.0, dtype="float32", E=3)
    for name, values in equal.values.items():
        assert values.shape == equal.shape_of(name)
        assert (values == np.float32(3.0 if name == "q" else 0.3)).all()


# ------------------------------------------------------------------ masks


def test_one_expression_has_two_meanings():
    tree = And(Not(Call("window", (1, None))), Or(Call("causal"), Call("documents", ((2, 3),))))
    mask = DrawnMask(tree)
    assert isinstance(mask.mask, rc.Mask)
    assert isinstance(mask.visible, oracle.Visibility)
    assert repr(evaluate(tree, oracle)) == "(~window(1, None) & (causal(0) | documents([2, 3])))"


def test_a_dense_mask_is_cut_to_each_ranks_queries():
    problem = replace(PLAIN, heads=(2, 1), mask=DrawnMask(Call("causal"), DenseBits((2,), seed=3)))
    bits = DenseBits((2,), seed=3).table(4, 4)
    np.testing.assert_array_equal(problem.visible, bits & np.tri(4, dtype=bool))
    (array,) = problem.mask.on_rank(problem, 1).arrays
    np.testing.assert_array_equal(array, bits[:, 2:])


def test_no_mask():
    assert DrawnMask().mask is None
    assert DrawnMask().on_rank(PLAIN, 0) is None
    assert PLAIN.visible.all()


# ------------------------------------------------------------------ events


@pytest.mark.parametrize(
    ("change", "case"),
    [
        ({}, "no mask"),
        ({}, "P > 1"),
        ({"q_layout": rc.Layout.contiguous(length=2, ranks=3), "k_layout": None}, "P > S"),
        ({"q_layout": rc.Layout.contiguous(length=2, ranks=3), "k_layout": None}, "P is odd and > 1"),
        ({"q_layout": rc.Layout.from_lengths([4, 0]), "k_layout": None}, "empty shard"),
        ({"q_layout": rc.Layout.from_lengths([4, 0]), "k_layout": None}, "uneven layout"),
        ({"q_layout": rc.Layout.contiguous(length=0, ranks=2), "k_layout": None}, "S = 0"),
        ({"q_layout": rc.Layout.contiguous(length=1, ranks=1), "k_layout": None}, "S = 1"),
        ({"q_layout": rc.Layout.contiguous(length=1, ranks=1), "k_layout": None}, "P = 1"),
        ({"q_layout": rc.Layout.contiguous(length=5, ranks=2), "k_layout": None}, "S is not a multiple of P"),
        ({"mask": DrawnMask(Call("causal", (-1,)))}, "query that sees no key"),
        ({"mask": DrawnMask(Call("causal", (-1,)))}, "key that no query sees"),
        ({"mask": DrawnMask(Call("causal", (-2,)))}, "rank that sees no key"),
        ({"heads": (4, 2)}, "GQA"),
        ({"heads": (4, 1)}, "MQA"),
        ({"heads": (8, 2)}, "H / G >= 4"),
        ({"E": 5}, "D != E"),
        ({"D": 8}, "D >= 8"),
        ({"k_layout": rc.Layout.zigzag(length=4, ranks=2)}, "two layouts"),
        ({"k_layout": rc.Layout.contiguous(length=6, ranks=2)}, "cross-attention"),
        ({"heads": None}, "2-d arrays"),
        ({}, "no batch dims"),
        ({"batch": (1, 2)}, "two batch dims"),
        ({"seq_axis": -3}, "seq_axis=-3"),
        (
            {"mask": DrawnMask(And(Or(Call("causal"), Call("full")), Call("prefix", (3,))))},
            "mask of three or more parts",
        ),
        ({"mask": DrawnMask(Not(Call("causal")))}, "complement"),
        ({"mask": DrawnMask(Call("padding", ((1, 2),))), "batch": (2,)}, "per-row mask"),
        ({"mask": DrawnMask(Call("documents", (((1,), (2,)),))), "batch": (2,)}, "per-row mask"),
        ({"mask": DrawnMask(None, DenseBits())}, "dense mask"),
        ({"mask": DrawnMask(None, DenseBits((2,))), "heads": (2, 2)}, "dense mask per head"),
        ({"with_dlse": False}, "lse has no cotangent"),
        ({"spread": 100.0}, "large scores"),
        ({"scale": 0.0}, "scale is 0"),
        ({"scale": -1.5}, "scale beyond 1"),
        ({"fill": 0.3}, "equal values"),
        ({"side": "q"}, "side=q"),
        ({"way": "direct"}, "way=direct"),
    ],
)
def test_each_hard_case_is_recognised(change, case):
    problem = replace(PLAIN, **change)
    assert case in problem.events()
    assert set(problem.events()) <= {*HARD_CASES, f"side={problem.side}", f"way={problem.way}"}
    others = {
        "mask": DrawnMask(Call("full")),
        "batch": (1,),
        "q_layout": rc.Layout.contiguous(length=4, ranks=1),
    }
    plain = replace(PLAIN, k_layout=None, **others)
    if case not in ("P = 1",):
        assert case not in plain.events()


def test_every_hard_case_has_a_test():
    (marks,) = (m for m in test_each_hard_case_is_recognised.pytestmark if m.name == "parametrize")
    assert {case for _, case in marks.args[1]} >= set(HARD_CASES)


def test_what_did_not_occur_is_named():
    assert_occurred({"GQA": 2, "MQA": 1}, ["GQA", "MQA"])
    with pytest.raises(AssertionError, match=r"at least 2 times\. Too few: MQA 1, P > S 0"):
        assert_occurred({"GQA": 2, "MQA": 1}, ["GQA", "MQA", "P > S"], least=2)


# ------------------------------------------------------------------ solve


class Recorder:
    """A backend that notes that it was called."""

    def __init__(self, tile=(64, 64)):
        from ringcore.block import GenericBackend

        self.tile, self.calls, self.inner, self.name = tile, 0, GenericBackend(tile), "recorder"

    def __getattr__(self, name):
        self.calls += 1
        return getattr(self.inner, name)


def test_solve_uses_the_backend_it_is_given():
    recorder = Recorder()
    solve(PLAIN, backend=recorder)
    assert recorder.calls > 0


def test_solve_gives_the_tile_to_a_backend_class():
    made = []

    def make(**options):
        made.append(Recorder(**options))
        return made[-1]

    solve(PLAIN, backend=make)
    solve(replace(PLAIN, tile=(1, 2)), backend=make)
    assert [recorder.tile for recorder in made] == [(64, 64), (1, 2)]
    assert all(recorder.calls > 0 for recorder in made)


def test_solve_passes_read_only_arrays():
    class Scribbler(Recorder):
        def attend(self, q, k, v, step, into):
            k[...] = 0
            return self.inner.attend(q, k, v, step, into)

    with pytest.raises(ValueError, match="read-only"):
        solve(PLAIN, backend=Scribbler())
