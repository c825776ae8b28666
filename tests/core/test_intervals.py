"""Interval algebra against sets of integers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcore import intervals
from ringcore.intervals import Intervals
from tests.libraries import Library
from tests.profiles import examples

Sets = list[set[int]]  # one set of visible positions for each query


def assert_canonical(a: Intervals, S: int) -> None:
    """Sorted, disjoint, in [0, S], unused slots last at S, integers."""
    lo, hi = np.asarray(a.lo), np.asarray(a.hi)
    assert lo.shape == hi.shape and lo.ndim >= 2 and lo.shape[0] >= 1
    assert lo.dtype.kind == "i" and lo.dtype == hi.dtype
    assert np.all((lo >= 0) & (lo <= hi) & (hi <= S))
    assert np.all(hi[:-1] <= lo[1:])
    empty = lo == hi
    assert np.all(empty[:-1] <= empty[1:]), "an unused slot before a used one"
    assert np.all(lo[empty] == S)


def sets_of(a: Intervals) -> Sets:
    """Intervals (n, L_q) as one set a query."""
    lo, hi = np.asarray(a.lo), np.asarray(a.hi)
    return [
        {p for n in range(lo.shape[0]) for p in range(lo[n, i], hi[n, i])}
        for i in range(lo.shape[1])
    ]  # fmt: skip


def single(lib: Library, ends: list[tuple[int, int]], S: int) -> tuple[Intervals, Sets]:
    lo, hi = (lib.asarray(np.asarray(side, dtype=np.int64)) for side in zip(*ends, strict=True))
    return intervals.single(lib.xp, lo, hi, S), [{p for p in range(S) if a <= p < b} for a, b in ends]


def evaluate(lib: Library, tree: Any, S: int) -> tuple[Intervals, Sets]:
    """A tree of ('~', t), ('&', t, t), ('|', t, t) and lists of ends, as intervals and as sets."""
    if isinstance(tree, list):
        return single(lib, tree, S)
    if tree[0] == "~":
        a, x = evaluate(lib, tree[1], S)
        return intervals.complement(lib.xp, a, S), [set(range(S)) - s for s in x]
    (a, x), (b, y) = evaluate(lib, tree[1], S), evaluate(lib, tree[2], S)
    if tree[0] == "&":
        return intervals.intersection(lib.xp, a, b, S), [s & t for s, t in zip(x, y, strict=True)]
    return intervals.union(lib.xp, a, b, S), [s | t for s, t in zip(x, y, strict=True)]


QUERIES = 3


def trees(S: int) -> st.SearchStrategy[Any]:
    ends = st.integers(-2, S + 2)
    leaf = st.lists(st.tuples(ends, ends), min_size=QUERIES, max_size=QUERIES)
    return st.recursive(
        leaf,
        lambda t: st.one_of(
            st.tuples(st.just("~"), t), st.tuples(st.just("&"), t, t), st.tuples(st.just("|"), t, t)
        ),
        max_leaves=6,
    )


@settings(max_examples=examples(100))
@given(data=st.data())
def test_and_or_not_of_any_tree_are_exact_and_canonical(xp: Library, data: st.DataObject) -> None:
    S = data.draw(st.sampled_from((0, 1, 9)))
    got, want = evaluate(xp, data.draw(trees(S)), S)
    assert_canonical(Intervals(xp.numpy(got.lo), xp.numpy(got.hi)), S)
    assert sets_of(Intervals(xp.numpy(got.lo), xp.numpy(got.hi))) == want


def random_tree(rng: random.Random, S: int, depth: int) -> Any:
    kind = rng.randrange(4) if depth else 3
    if kind == 3:
        return [(rng.randint(-2, S + 2), rng.randint(-2, S + 2)) for _ in range(40)]
    if kind == 2:
        return ("~", random_tree(rng, S, depth - 1))
    return ("&|"[kind], random_tree(rng, S, depth - 1), random_tree(rng, S, depth - 1))


class _NumPy:
    """What `evaluate` needs of a library."""

    xp: Any = np
    asarray: Callable[[Any], Any] = staticmethod(np.asarray)


def test_twelve_thousand_random_expressions_are_exact() -> None:
    rng, slots = random.Random(5), set()
    for _ in range(300):  # of 40 queries each
        S = rng.randint(0, 12)
        got, want = evaluate(_NumPy, random_tree(rng, S, 5), S)  # type: ignore[arg-type]
        assert_canonical(got, S)
        assert sets_of(got) == want
        slots.add(max(int((got.lo < got.hi)[:, i].sum()) for i in range(40)))
    assert slots >= {0, 1, 2, 3, 4}, "the trees are too simple to tell much"


def test_number_of_slots_is_what_the_algebra_says() -> None:
    lo = np.zeros((3, 5), np.int64)
    a, b = Intervals(lo, lo + 1), Intervals(lo[:2], lo[:2] + 1)
    assert intervals.union(np, a, b, 9).lo.shape[0] == 5
    assert intervals.intersection(np, a, b, 9).lo.shape[0] == 4
    assert intervals.complement(np, a, 9).lo.shape[0] == 4


@pytest.mark.parametrize("leads", [((2, 1), (3,)), ((2, 3), ())], ids=str)
def test_lead_axes_broadcast(xp: Library, leads: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng, S, L = np.random.default_rng(0), 7, 4
    joint = np.broadcast_shapes(*leads)

    def leaf(lead: tuple[int, ...]) -> tuple[Intervals, np.ndarray]:
        lo, hi = rng.integers(0, S, (*lead, L)), rng.integers(0, S + 1, (*lead, L))
        p = np.arange(S)
        table = (p >= lo[..., None]) & (p < hi[..., None])
        return intervals.single(xp.xp, xp.asarray(lo), xp.asarray(hi), S), table

    def table_of(a: Intervals) -> np.ndarray:
        lo, hi = xp.numpy(a.lo), xp.numpy(a.hi)
        assert_canonical(Intervals(lo, hi), S)
        p = np.arange(S)
        return np.any((p >= lo[..., None]) & (p < hi[..., None]), axis=0)

    (a, x), (b, y) = leaf(leads[0]), leaf(leads[1])
    both = intervals.intersection(xp.xp, a, b, S)
    assert tuple(both.lo.shape[1:]) == (*joint, L)
    assert np.array_equal(table_of(both), np.broadcast_to(x & y, (*joint, L, S)))
    assert np.array_equal(table_of(intervals.union(xp.xp, a, b, S)), np.broadcast_to(x | y, (*joint, L, S)))
    assert np.array_equal(table_of(intervals.complement(xp.xp, a, S)), ~x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_integer_dtype_is_kept(xp: Library, dtype: str) -> None:
    lo, hi = (xp.asarray(np.array(x, dtype=dtype)) for x in ([0, 5], [3, 2]))
    a = intervals.single(xp.xp, lo, hi, 9)
    for result in (a, intervals.complement(xp.xp, a, 9), intervals.union(xp.xp, a, a, 9)):
        assert xp.numpy(result.lo).dtype == xp.numpy(result.hi).dtype == np.dtype(dtype)


def test_operations_trace() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as jnp

    tree = ("|", ("~", ("&", [(1, 5), (0, 9)], [(2, 9), (4, 4)])), ("&", [(0, 2), (7, 8)], [(1, 7), (3, 9)]))

    def leaves(tree: Any) -> list[Any]:
        return [tree] if isinstance(tree, list) else [leaf for t in tree[1:] for leaf in leaves(t)]

    def run(ends: Any) -> Intervals:
        left = iter(ends)

        def build(tree: Any) -> Intervals:
            if isinstance(tree, list):
                pair = next(left)
                return intervals.single(jnp, pair[:, 0], pair[:, 1], 9)
            if tree[0] == "~":
                return intervals.complement(jnp, build(tree[1]), 9)
            operation = intervals.union if tree[0] == "|" else intervals.intersection
            return operation(jnp, build(tree[1]), build(tree[2]), 9)

        return build(tree)

    got = jax.jit(run)(jnp.asarray(leaves(tree)))
    assert_canonical(got, 9)
    _, want = evaluate(_NumPy, tree, 9)  # type: ignore[arg-type]
    assert sets_of(got) == want


@settings(max_examples=examples(100))
@given(data=st.data())
def test_compact_drops_exactly_the_slots_that_nobody_uses(data: st.DataObject) -> None:
    S = data.draw(st.integers(0, 9))
    a, want = evaluate(_NumPy, data.draw(trees(S)), S)  # type: ignore[arg-type]
    small = intervals.compact(a)
    assert_canonical(small, S)
    assert sets_of(small) == want
    assert small.lo.shape[0] == max(1, int(np.any(a.lo < a.hi, axis=1).sum()))


@settings(max_examples=examples(100))
@given(data=st.data())
def test_hull_is_the_union_over_queries_as_separate_intervals(data: st.DataObject) -> None:
    S = data.draw(st.integers(0, 9))
    a, want = evaluate(_NumPy, data.draw(trees(S)), S)  # type: ignore[arg-type]
    hull = intervals.hull(a)
    assert {p for lo, hi in zip(*hull, strict=True) for p in range(lo, hi)} == set().union(*want)
    assert np.all(hull.lo < hull.hi) and np.all(hull.hi[:-1] < hull.lo[1:]), "sorted, with gaps between"
