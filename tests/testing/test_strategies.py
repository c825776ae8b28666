"""What the strategies draw: every hard case, the simplest example, and masks that mean what they say."""

from __future__ import annotations

from collections import Counter

import numpy
import numpy as np
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.testing import HARD_CASES, Call, DrawnMask, assert_occurred
from ringcore.testing.drawn_mask import names
from ringcore.testing.strategies import attention_problems, layouts, masks

# Derandomised: what is counted here is a property of the strategies, not of luck.
QUIET = settings(
    max_examples=3000,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],  # `find` returns what the explain phase has tried last
)


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
    @settings(QUIET, max_examples=100)
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
    lo, hi = (rc.full() if mask is None else mask).lower(np, np.arange(S_q), S_k)
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
        seen["dense"] += drawn.dense is not None
        seen["none"] += drawn.tree is None

    body()
    assert_occurred(seen, CONSTRUCTORS | {"&", "|", "~", "dense", "none"}, least=10)


HARD_ARGUMENTS = {
    "causal, negative": lambda name, args: name == "causal" and args[0] < 0,
    "causal, beyond the neighbours": lambda name, args: name == "causal" and args[0] > 3,
    "window, open on one side": lambda name, args: name == "window" and args.count(None) == 1,
    "window, open on both sides": lambda name, args: name == "window" and args.count(None) == 2,
    "documents, one of them empty": lambda name, args: name == "documents" and 0 in np.ravel(args[0]),
    "documents, too short": lambda name, args: name == "documents" and np.min(np.sum(args[0], -1)) < 6,
    "documents, too long": lambda name, args: name == "documents" and np.max(np.sum(args[0], -1)) > 9,
    "documents of each row": lambda name, args: name == "documents" and np.ndim(args[0]) == 2,
    "documents of other lengths among the keys": lambda name, args: name == "documents" and len(args) == 2,
    "padding to nothing": lambda name, args: name == "padding" and 0 in args[0],
    "padding of unequal rows": lambda name, args: name == "padding" and args[0][0] != args[0][1],
    "keys, none": lambda name, args: name == "keys" and args[0] == args[1],
    "keys behind the end": lambda name, args: name == "keys" and args[1] > 9,
    "several global tokens": lambda name, args: name == "global_tokens" and len(set(args[0])) > 1,
}


def test_the_hard_arguments_are_drawn():
    seen: Counter[str] = Counter()

    @settings(QUIET, max_examples=1000)
    @given(masks(6, 9, (2,), dense=False, max_parts=1))
    def body(drawn):
        match drawn.tree:
            case Call(name, args):
                seen.update(case for case, holds in HARD_ARGUMENTS.items() if holds(name, args))

    body()
    assert_occurred(seen, HARD_ARGUMENTS)


def test_masks_shrink_to_none():
    assert simplest(masks(5, 5)) == DrawnMask()


def test_no_dense_mask_where_none_is_wanted():
    @settings(QUIET, max_examples=100)
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
    assert_occurred(seen, [*HARD_CASES, *requests], least=3)


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
    assert found.S_k <= 6
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
            heads=[(5, 5)],
            dims=[7],
            scales=[0.125],
            fills=[0.9],
            drawn_masks=lambda S_q, S_k, batch: st.just(DrawnMask()),
        )
    )
    def body(problem):
        assert problem.ranks <= 2
        assert max(problem.S_q, problem.S_k) <= 5
        assert (problem.dtype, problem.side, problem.way, problem.tile) == ("float32", "kv", "ring", (2, 2))
        assert (problem.heads, problem.D, problem.scale, problem.fill) == ((5, 5), 7, 0.125, 0.9)
        assert problem.mask == DrawnMask()
        assert problem.poison is None

    body()


def test_a_dense_mask_pins_the_query_side():
    @settings(QUIET, max_examples=200)
    @given(attention_problems(numpy, sides=("q", "kv")))
    def body(problem):
        assert problem.side == "kv" or problem.mask.dense is None

    body()


def test_every_input_is_poisoned():
    seen: Counter[str] = Counter()

    @settings(QUIET, max_examples=500)
    @given(attention_problems(numpy, poison=True))
    def body(problem):
        if problem.poison is not None:
            name, _, value, row = problem.poison
            seen.update([name, str(value), "one row" if row is not None else "all rows"])
            bad = ~np.isfinite(problem.values[name])
            assert bad.sum() == 1 if row is not None else bad.any()

    body()
    assert_occurred(seen, ["q", "k", "v", "dout", "dlse", "nan", "inf", "-inf", "one row", "all rows"])


def test_ranks_may_be_a_number_or_a_strategy():
    drawn = set()

    @settings(QUIET, max_examples=50)
    @given(attention_problems(numpy, ranks=st.sampled_from([2, 3])), attention_problems(numpy, ranks=5))
    def body(some, five):
        drawn.add((some.q_layout.ranks, some.k_layout.ranks))
        assert five.q_layout.ranks == five.k_layout.ranks == five.ranks == 5

    body()
    assert drawn == {(2, 2), (3, 3)}
