"""The monoid of partial results against softmax by its definition, in extended precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcore.dtypes import unit_roundoff
from ringcore.partial import Partial, finish, identity, merge
from tests.libraries import Library
from tests.profiles import examples

KEYS, ROWS, WIDTH = 7, 3, 2


def naive(xp: Library, scores: np.ndarray, values: np.ndarray, keys: list[int]) -> Partial:
    """The partial over some keys, by the definition; scores (ROWS, KEYS), values (KEYS, WIDTH)."""
    s, v = scores[:, keys], values[keys]
    m = s.max(axis=1, initial=-math.inf)
    p = np.exp(s - np.where(m == -math.inf, 0, m)[:, None])
    return Partial(*(xp.asarray(x) for x in (p @ v, m, p.sum(axis=1))))


def exact(scores: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(out, lse) and their condition numbers, in extended precision; scores count as given."""
    s, v = scores.astype(np.longdouble), values.astype(np.longdouble)
    top = s.max(axis=1, keepdims=True)
    seen = top[:, 0] > -np.inf
    e = np.exp(s - np.where(seen[:, None], top, 0))
    total = e.sum(axis=1)
    p = e / np.where(seen, total, 1)[:, None]
    sigma = np.abs(np.where(np.isfinite(s), s, 0))
    sbar = (p * sigma).sum(axis=1, keepdims=True)
    out = p @ v
    with np.errstate(divide="ignore"):
        lse = np.where(seen, top[:, 0] + np.log(total), -np.inf)
    cond_out = (p * (1 + sigma + sbar) + 2.0**-102 * seen[:, None]) @ np.abs(v) + sbar * np.abs(out)
    return out, lse, cond_out, np.abs(np.where(seen, lse, 0)) + sbar[:, 0] + 1


def assert_exact(xp: Library, partial: Partial, scores: np.ndarray, values: np.ndarray) -> None:
    out, lse = (xp.numpy(x) for x in finish(xp.xp, partial))
    want_out, want_lse, cond_out, cond_lse = exact(scores, values)
    u = unit_roundoff(scores.dtype)
    assert out.dtype == lse.dtype == scores.dtype
    assert np.all(np.abs(out - want_out) <= 8 * u * cond_out), (out, want_out)
    seen = want_lse > -np.inf
    assert np.all(lse[~seen] == -np.inf) and np.all(out[~seen] == 0)
    assert np.all(np.abs(lse[seen] - want_lse[seen]) <= 8 * u * cond_lse[seen])


@st.composite
def splits(draw: st.DrawFn) -> list[list[int]]:
    """The keys in any order, dealt to groups of which some are empty."""
    order = draw(st.permutations(range(KEYS)))
    cuts = sorted(draw(st.lists(st.integers(0, KEYS), max_size=5)))
    return [list(order[a:b]) for a, b in zip([0, *cuts], [*cuts, KEYS], strict=True)]


def problem(seed: int, spread: float, dtype: str, hidden: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = (spread * rng.standard_normal((ROWS, KEYS))).astype(dtype)
    scores[rng.random((ROWS, KEYS)) < hidden] = -np.inf
    return scores, rng.standard_normal((KEYS, WIDTH)).astype(dtype)


@settings(max_examples=examples(200))
@given(
    groups=splits(),
    seed=st.integers(0, 9999),
    spread=st.sampled_from([1.0, 30.0, 1e4, 1e30]),  # exp(88) is the largest float32, exp(709) float64
    dtype=st.sampled_from(["float32", "float64"]),
    hidden=st.sampled_from([0.0, 0.4, 1.0]),
    pick=st.randoms(use_true_random=False),
)
def test_any_split_in_any_order_is_the_whole(
    xp: Library, groups: list[list[int]], seed: int, spread: float, dtype: str, hidden: float, pick: Any
) -> None:
    scores, values = problem(seed, spread, dtype, hidden)
    parts = [naive(xp, scores, values, keys) for keys in groups]
    with np.errstate(over="raise", invalid="raise"):
        while len(parts) > 1:  # any tree of merges, either operand first
            a, b = parts.pop(pick.randrange(len(parts))), parts.pop(pick.randrange(len(parts)))
            parts.append(merge(xp.xp, a, b))
    assert all(np.all(np.isfinite(xp.numpy(x)) | (xp.numpy(x) == -np.inf)) for x in parts[0])
    assert_exact(xp, parts[0], scores, values)


def test_references_a_thousand_apart_neither_overflow_nor_lose_the_larger(xp: Library) -> None:
    def one(m: float, value: float) -> Partial:
        return Partial(*(xp.asarray(np.array(x, np.float32)) for x in ([[value]], [m], [1.0])))

    for far in (89.0, 1000.0, 3e38):  # twice 3e38 is inf, and exp(-inf) is right
        for a, b in ((far, -far), (-far, far)):
            with np.errstate(over="ignore"):
                out, lse = finish(xp.xp, merge(xp.xp, one(a, 2.0), one(b, 5.0)))
            assert float(xp.numpy(out)[0, 0]) == (2.0 if a > b else 5.0)
            assert float(xp.numpy(lse)[0]) == np.float32(far)


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 9999),
    hidden=st.sampled_from([0.0, 0.5, 1.0]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_the_identity_changes_no_bit(xp: Library, seed: int, hidden: float, dtype: str) -> None:
    scores, values = problem(seed, 10.0, dtype, hidden)
    a = naive(xp, scores, values, list(range(KEYS)))
    nothing = identity(xp.xp, (ROWS, WIDTH), getattr(xp.xp, dtype))
    for both in (merge(xp.xp, a, nothing), merge(xp.xp, nothing, a)):
        for x, y in zip(both, a, strict=True):
            assert np.array_equal(xp.numpy(x), xp.numpy(y)) and x.dtype == y.dtype


def test_nothing_merged_with_nothing_is_nothing(xp: Library) -> None:
    nothing = identity(xp.xp, (2, 4, 3), xp.xp.float32)
    assert [tuple(x.shape) for x in nothing] == [(2, 4, 3), (2, 4), (2, 4)]
    out, lse = finish(xp.xp, merge(xp.xp, nothing, nothing))
    assert np.array_equal(xp.numpy(out), np.zeros((2, 4, 3))) and np.all(xp.numpy(lse) == -np.inf)


@settings(max_examples=examples(100))
@given(groups=splits(), seed=st.integers(0, 9999), hidden=st.sampled_from([0.0, 0.6, 1.0]))
def test_a_kernel_that_only_gives_out_and_lse_may_hand_in_ones(
    xp: Library, groups: list[list[int]], seed: int, hidden: float
) -> None:
    """Partial(out, lse, 1): in natural logarithms, also for rows that see none of its keys."""
    scores, values = problem(seed, 5.0, "float64", hidden)
    whole = None
    for keys in groups:
        out, lse = finish(xp.xp, naive(xp, scores, values, keys))
        part = Partial(out, lse, xp.xp.ones_like(lse))
        whole = part if whole is None else merge(xp.xp, whole, part)
    assert_exact(xp, whole, scores, values)


def test_a_sink_takes_its_share() -> None:
    """(0, sink, 1) is a key with value 0."""
    scores, values = np.array([[1.0, 2.0]]), np.array([[3.0], [5.0]])
    part = merge(np, Partial((e := np.exp(scores - 2)) @ values, np.array([2.0]), e.sum(axis=1)),
                 Partial(np.zeros((1, 1)), np.array([0.5]), np.ones(1)))  # fmt: skip
    weights = np.exp([1.0, 2.0, 0.5])
    out, lse = finish(np, part)
    assert out[0, 0] == pytest.approx(weights @ [3, 5, 0] / weights.sum(), rel=1e-15)
    assert lse[0] == pytest.approx(math.log(weights.sum()), rel=1e-15)


def test_nan_and_inf_stay_in_their_rows(xp: Library) -> None:
    def partial(acc: Any, m: Any, l: Any) -> Partial:  # noqa: E741
        return Partial(*(xp.asarray(np.array(x)) for x in (acc, m, l)))

    nan, inf = math.nan, math.inf
    bad = partial([[nan], [1.0], [inf], [2.0], [1.0]], [1.0, nan, 0.0, -inf, inf], [1.0, 1.0, 1.0, 0.0, nan])
    good = partial([[1.0]] * 5, [0.0] * 5, [2.0] * 5)
    with np.errstate(all="ignore"):
        out = xp.numpy(finish(xp.xp, merge(xp.xp, bad, good))[0])[:, 0]
    assert np.isfinite(out).tolist() == [False, False, False, True, False]
    assert out[3] == 0.5


def test_a_nan_that_only_the_sum_has_kept_stays(xp: Library) -> None:
    """XLA's max over NaN and -inf may say -inf on a CPU."""
    nan, inf = np.nan, np.inf
    acc, m, l = np.array([[nan], [0.0]]), np.array([-inf, -inf]), np.array([nan, 0.0])  # noqa: E741
    out, lse = finish(xp.xp, Partial(*(xp.asarray(x) for x in (acc, m, l))))
    assert np.isnan(xp.numpy(out)).tolist() == [[True], [False]]
    assert np.isnan(xp.numpy(lse)).tolist() == [True, False]


def test_merge_and_finish_trace() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as jnp

    scores, values = problem(1, 30.0, "float64", 0.5)
    scores[0] = -np.inf
    lib = Library("jax", jnp, jnp.asarray, np.asarray)
    parts = [naive(lib, scores, values, keys) for keys in ([0, 1], [2, 3, 4], [5, 6])]
    got = jax.jit(lambda a, b, c: finish(jnp, merge(jnp, merge(jnp, a, b), c)))(*parts)
    want = exact(scores, values)
    assert np.allclose(got[0], want[0].astype(float), rtol=1e-13, atol=1e-15)
    assert np.allclose(got[1], want[1].astype(float), rtol=1e-13)
