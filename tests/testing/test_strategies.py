"""What the strategies draw: every hard case, what is simplest when it fails, and masks that mean what they say."""

from __future__ import annotations

from collections import Counter

import numpy
import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.testing import HARD_CASES, DrawnMask, assert_occurred
from ringcore.testing.drawn_mask import names
from ringcore.testing.strategies import attention_problems, layouts, masks

QUIET = settings(max_examples=3000, suppress_health_check=list(HealthCheck), database=None, deadline=None)


def simplest(strategy, condition=lambda x: True):
    return find(strategy, condition, settings=QUIET)


# ------------------------------------------------------------------ layouts


@given(layouts())
def test_a_layout_deals_out_every_position_once(layout):
    dealt = [layout.positions(rank) for rank in range(layout.ranks)]
    assert sorted(np.concatenate(dealt)) == list(range(layout.length))
    assert 0 <= layout.length <= 40
    assert 1 <= layout.ranks <= 8


def test_layouts_of_every_kind_are_drawn():
    for kind in ("contiguous", "zigzag", "striped", "uneven"):
        assert simplest(layouts(), lambda layout, kind=kind: layout.kind == kind).kind == kind
    assert simplest(layouts(), lambda layout: layout.block > 1).block == 2


def test_length_and_ranks_may_be_numbers_or_strategies():
    @QUIET
    @given(layouts(length=5, ranks=st.sampled_from([2, 3])))
    def body(layout):
        assert layout.length == 5
        assert layout.ranks in (2, 3)

    body()


def test_layouts_shrink_to_no_position_on_one_rank():
    assert simplest(layouts()) == rc.Layout.contiguous(length=0, ranks=1)


# ------------------------------------------------------------------ masks


def seen_by_intervals(mask, S_q, S_k, shape):
    """The table that a mask's intervals stand for."""
    lo, hi = (mask or rc.full()).lower(np, np.arange(S_q), S_k)
    j = np.arange(S_k)
    inside = (j >= lo[..., None]) & (j < hi[..., None])
    assert (inside.sum(axis=0) <= 1).all(), "the intervals of a query must be disjoint"
    return np.broadcast_to(inside.any(axis=0), shape)


@st.composite
def cases(draw):
    S_q, S_k = draw(st.integers(0, 12)), draw(st.integers(0, 12))
    batch = draw(st.sampled_from([(), (2,), (2, 3)]))
    return S_q, S_k, batch, draw(masks(S_q, S_k, batch, dense=False, max_parts=6))


@given(cases())
def test_a_mask_and_its_predicate_are_the_same(case):
    S_q, S_k, batch, drawn = case
    table = drawn.visible.table(S_q, S_k)
    assert np.broadcast_shapes(table.shape, (*batch, 1, S_q, S_k)) == (*batch, 1, S_q, S_k)
    shape = np.broadcast_shapes(table.shape, (*batch, 1, S_q, S_k))
    np.testing.assert_array_equal(
        seen_by_intervals(drawn.mask, S_q, S_k, shape), np.broadcast_to(table, shape)
    )


CONSTRUCTORS = {"full", "causal", "window", "documents", "prefix", "keys", "padding", "global_tokens"}


def test_every_constructor_and_operator_is_drawn():
    seen: Counter[str] = Counter()

    @settings(QUIET, max_examples=400)
    @given(masks(9, 9, (2,), heads=2))
    def body(drawn):
        seen.update(names(drawn.tree))
        seen.update(["dense"] * (drawn.dense is not None), ["none"] * (drawn.tree is None))

    body()
    assert_occurred(seen, CONSTRUCTORS | {"&", "|", "~"}, least=10)


def test_the_hard_arguments_are_drawn():
    strategy = masks(6, 9, (2,), dense=False)

    def argument(name, condition):
        return simplest(
            strategy, lambda m: getattr(m.tree, "name", "") == name and condition(m.tree.args)
        ).tree.args

    assert argument("causal", lambda a: a[0] < 0) == (-1,)
    assert argument("causal", lambda a: a[0] > 3) == (4,)
    assert None in argument("window", lambda a: a[0] is not None and a[1] is None)
    assert argument("documents", lambda a: len(a) == 1 and 0 in a[0] and sum(a[0]) > 9)
    assert argument("documents", lambda a: len(a) == 1 and np.ndim(a[0]) == 1 and sum(a[0]) < 6)
    assert np.shape(argument("documents", lambda a: np.ndim(a[0]) == 2)[0])[0] == 2
    assert len(argument("documents", lambda a: len(a) == 2)) == 2
    assert argument("padding", lambda a: a[0][0] != a[0][1])
    assert len(argument("global_tokens", lambda a: len(set(a[0])) == 3)[0]) == 3


def test_masks_shrink_to_none():
    assert simplest(masks(5, 5)) == DrawnMask()


def test_no_dense_mask_where_none_is_wanted():
    @QUIET
    @given(masks(5, 5, dense=False))
    def body(drawn):
        assert drawn.dense is None

    body()


# ------------------------------------------------------------------ problems


def test_every_hard_case_is_drawn():
    seen: Counter[str] = Counter()

    @settings(QUIET, max_examples=600)
    @given(attention_problems(numpy))
    def body(problem):
        seen.update(problem.events())

    body()
    requests = [f"side={side}" for side in ("auto", "kv", "q")] + [
        f"way={w}" for w in ("auto", "ring", "direct")
    ]
    assert_occurred(seen, [*HARD_CASES, *requests], least=2)


def test_problems_shrink_to_nothing_on_one_rank():
    assert repr(simplest(attention_problems(numpy))) == (
        "Problem(xp=numpy, q_layout=Layout.contiguous(length=0, ranks=1))"
    )


def test_what_fails_shrinks_to_what_matters():
    """A defect that needs GQA, several ranks and a key that is seen by nobody leaves little else."""
    found = simplest(
        attention_problems(numpy),
        lambda p: p.ranks > 1 and "GQA" in p.events() and "key that no query sees" in p.events(),
    )
    assert found.ranks == 2
    assert found.S_q <= 2
    assert found.S_k <= 2
    assert found.batch == ()
    assert found.seed == 0
    assert len(names(found.mask.tree)) <= 2


def test_the_bounds_of_a_problem_can_be_set():
    @settings(QUIET, max_examples=200)
    @given(
        attention_problems(
            numpy,
            max_ranks=2,
            max_length=5,
            dtypes=["float32"],
            sides=["kv"],
            ways=["ring"],
            tiles=[(2, 2)],
            drawn_masks=lambda S_q, S_k, batch: st.just(DrawnMask()),
        )
    )
    def body(problem):
        assert problem.ranks <= 2
        assert max(problem.S_q, problem.S_k) <= 5
        assert (problem.dtype, problem.side, problem.way, problem.tile) == ("float32", "kv", "ring", (2, 2))
        assert problem.mask == DrawnMask()
        assert problem.poison is None

    body()


def test_a_dense_mask_pins_the_query_side():
    @settings(QUIET, max_examples=200)
    @given(attention_problems(numpy, sides=("q", "kv")))
    def body(problem):
        assert problem.side == "kv" or problem.mask.dense is None

    body()


@pytest.mark.parametrize("name", ["q", "k", "v", "dout", "dlse"])
def test_every_input_is_poisoned(name):
    found = simplest(
        attention_problems(numpy, poison=True),
        lambda p: p.poison is not None and p.poison.name == name and p.poison.row is not None,
    )
    assert np.isnan(found.values[name]).sum() == 1
