"""What compiled kernels make of rows of scores and of the intervals of a mask, against brute force."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.both import need_compiled

need_compiled()

from ringcore_numpy.compiled import nonfinite  # noqa: E402
from ringcore_numpy.compiled.rows import largest, weigh  # noqa: E402
from ringcore_numpy.compiled.sums import add, rescale  # noqa: E402
from ringcore_numpy.compiled.tiles import (  # noqa: E402
    edges_of,
    fill_gaps,
    meets,
    rows_that_see,
    visible_range,
)

KINDS = [np.float32, np.float64]


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_largest_number(kind: Any, data: Any) -> None:
    """That of `np.max`, but that 0.0 is larger than -0.0."""
    width = np.finfo(kind).bits
    numbers = st.one_of(
        st.floats(allow_nan=False, width=width), st.sampled_from([0.0, -0.0, -np.inf, np.inf])
    )
    row = np.array(data.draw(st.lists(numbers, max_size=40)), kind)
    start = kind(data.draw(numbers))
    everything = np.append(row, start)
    found = largest(row, start)
    assert type(found) is float or found.dtype == kind
    assert found == everything.max()
    if found == 0:
        positive = ~np.signbit(everything[everything == 0])
        assert np.signbit(found) == (not positive.any())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_nan_is_the_largest_or_the_smallest(kind: Any, sign: int) -> None:
    """By its sign. Either will do: the weights are NaN, for the score is."""
    nan = np.copysign(kind(np.nan), kind(sign))
    for at in range(9):
        row = np.arange(9, dtype=kind)
        row[at] = nan
        found = largest(row, kind(-np.inf))
        assert np.isnan(found) if sign > 0 else found == np.nanmax(row)
        assert np.isnan(weigh(row, found)) and np.isnan(row[at])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 7, 64, 513])
def test_weights_and_their_sum(kind: Any, size: int) -> None:
    row = np.random.default_rng(size).standard_normal(size).astype(kind) * 5
    reference = kind(3)
    want = np.exp((row - reference).astype(np.longdouble))
    total = weigh(row, reference)
    eps = np.finfo(kind).eps
    np.testing.assert_allclose(row, want.astype(kind), rtol=2 * eps)
    assert abs(total - want.sum()) <= 4 * eps * want.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_sums_that_lose_nothing(kind: Any) -> None:
    """Equal terms, whose roundings all go the same way, and a change of reference in between."""
    terms, value = 30_000, kind(1 / 3)
    total, lost = np.zeros(3, kind), np.zeros(3, kind)
    for n in range(terms):
        if n == terms // 2:
            rescale(total, kind(0.5))
            rescale(lost, kind(0.5))
        term = np.array([value, 2 * value, 0], kind)
        add(total, lost, term, kind(0.5))
        assert (term == 0).all(), "for the next sum"
    exact = np.array([1, 2, 0]) * float(value) * 0.5 * 0.75 * terms
    assert (np.abs(total - exact) <= 2 * np.finfo(kind).eps * exact).all()


# ---------------------------------------------------------------------- intervals


class Drawn(NamedTuple):
    lo: np.ndarray
    hi: np.ndarray
    L_k: int

    @property
    def seen(self) -> np.ndarray:
        """Who sees whom, (L_q, L_k)."""
        keys = np.arange(self.L_k)
        return ((self.lo[..., None] <= keys) & (keys < self.hi[..., None])).any(axis=0)


@st.composite
def intervals(draw: st.DrawFn) -> Drawn:
    """Sorted and disjoint, touching at times; the slots that a row does not use come anywhere."""
    L_q, L_k, slots = draw(st.integers(1, 9)), draw(st.integers(1, 14)), draw(st.integers(1, 4))
    alike = draw(st.booleans())
    lo, hi = np.full((slots, L_q), L_k), np.full((slots, L_q), L_k)
    for row in range(L_q):
        if row and alike and draw(st.integers(0, 4)):
            lo[:, row], hi[:, row] = lo[:, row - 1], hi[:, row - 1]
            continue
        used = draw(st.integers(0, slots))
        ends = sorted(draw(st.lists(st.integers(0, L_k), min_size=2 * used, max_size=2 * used)))
        first = draw(st.integers(0, slots - used))
        lo[:first, row] = hi[:first, row] = draw(st.sampled_from([0, *ends[:1]]))
        lo[first : first + used, row], hi[first : first + used, row] = ends[::2], ends[1::2]
    return Drawn(lo, hi, L_k)


@st.composite
def tiles(draw: st.DrawFn) -> tuple[Drawn, int, int, int, int]:
    """Intervals, and the rows q0..q1 and columns k0..k1 of a tile."""
    drawn = draw(intervals())
    q0, k0 = draw(st.integers(0, drawn.lo.shape[1] - 1)), draw(st.integers(0, drawn.L_k - 1))
    return drawn, q0, draw(st.integers(q0 + 1, drawn.lo.shape[1])), k0, draw(st.integers(k0 + 1, drawn.L_k))


def edges(drawn: Drawn, q0: int, q1: int) -> np.ndarray:
    found = np.full((4, drawn.lo.shape[0]), -99)
    edges_of(drawn.lo, drawn.hi, q0, q1, found)
    return found


@given(tile=tiles())
def test_edges_by_slot(tile: tuple[Drawn, int, int, int, int]) -> None:
    drawn, q0, q1, *_ = tile
    for slot, (some_lo, some_hi, all_lo, all_hi) in enumerate(edges(drawn, q0, q1).T):
        lo, hi = drawn.lo[slot, q0:q1], drawn.hi[slot, q0:q1]
        assert (all_lo, all_hi) == (lo.max(), hi.min())
        used = lo < hi
        if used.any():
            assert (some_lo, some_hi) == (lo[used].min(), hi[used].max())
        else:
            assert some_lo >= some_hi


@given(tile=tiles())
def test_rows_that_see_something(tile: tuple[Drawn, int, int, int, int]) -> None:
    drawn, q0, q1, k0, k1 = tile
    at = edges(drawn, q0, q1)
    seen = drawn.seen[q0:q1, k0:k1]
    rows = np.flatnonzero(seen.any(axis=1))
    found = rows_that_see(drawn.lo, drawn.hi, at, q0, q1, k0, k1)
    if rows.size == 0:
        assert found == (q0, q0, False)
        return
    first, last = rows[0], rows[-1] + 1
    assert found == (q0 + first, q0 + last, bool(seen[first:last].all()))
    assert meets(at, k0, k1), "it may say so of rows that see nothing, but not the other way round"


@given(tile=tiles())
def test_ends_and_gaps_of_a_row(tile: tuple[Drawn, int, int, int, int]) -> None:
    drawn, i, _, k0, k1 = tile
    seen = drawn.seen[i, k0:k1]
    at = np.flatnonzero(seen)
    a, b = visible_range(drawn.lo, drawn.hi, i, k0, k1)
    assert (a, b) == ((at[0], at[-1] + 1) if at.size else (0, 0))
    row = np.arange(1.0, 1 + k1 - k0)
    want = row.copy()
    want[a:b][~seen[a:b]] = -7
    fill_gaps(row, drawn.lo, drawn.hi, i, k0, a, b, -7)
    assert np.array_equal(row, want)


# ---------------------------------------------------------------------- NaN and inf


@given(drawn=intervals(), data=st.data())
def test_what_a_nan_reaches(drawn: Drawn, data: Any) -> None:
    L_q = drawn.lo.shape[1]
    heads, columns = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))

    def some(length: int) -> np.ndarray:
        bad = np.zeros((heads, length, columns), bool)
        for _ in range(data.draw(st.integers(1, 3))):
            bad.reshape(-1)[data.draw(st.integers(0, bad.size - 1))] = True
        return bad

    keys, queries = some(drawn.L_k), some(L_q)
    seen = drawn.seen.astype(int)
    assert np.array_equal(nonfinite.rows_reached(drawn.lo, drawn.hi, keys), seen @ keys > 0)
    assert np.array_equal(
        nonfinite.keys_reached(drawn.lo, drawn.hi, queries, drawn.L_k), seen.T @ queries > 0
    )


def test_nothing_is_looked_for_where_all_is_finite() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 3))
    assert nonfinite.nonfinite(x) is None and nonfinite.without(x, None) is x
    for value in (np.nan, np.inf, -np.inf):
        x[1, 4, 2] = value
        bad = nonfinite.nonfinite(x)
        assert bad is not None and np.array_equal(bad, ~np.isfinite(x))
        clean = nonfinite.without(x, bad)
        assert clean[1, 4, 2] == 0 and np.array_equal(clean[~bad], x[~bad])
