"""Products that keep NaN and inf in the rows that see them, against loops over single elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcore.guard import all_finite, masked_product
from tests.libraries import Library
from tests.profiles import examples

M, N, D = 4, 5, 3
ODD = [math.nan, math.inf, -math.inf]


def by_elements(weights: np.ndarray, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Sum over what is seen, one element at a time; weights are 0 elsewhere and never looked at."""
    out = np.zeros((*weights.shape[:-1], x.shape[-1]))
    for at in np.ndindex(*out.shape):
        *lead, i, d = at
        for j in range(x.shape[-2]):
            if seen[(*lead, i, j)]:
                out[at] += weights[(*lead, i, j)] * x[(*lead, j, d)]
    return out


@settings(max_examples=examples(150))
@given(data=st.data())
def test_a_bad_row_reaches_exactly_the_rows_that_see_it(xp: Library, data: st.DataObject) -> None:
    """Where the sum over what is seen is finite the product is that sum, elsewhere it is not finite."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9999)))
    seen = rng.random((2, M, N)) < data.draw(st.sampled_from([0.2, 0.5, 0.9]))
    weights = np.where(seen, rng.integers(1, 4, (2, M, N)), 0).astype(float)
    x = rng.integers(-3, 4, (2, N, D)).astype(float)  # small integers: exact in any order
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.tuples(st.integers(0, 1), st.integers(0, N - 1), st.integers(0, D - 1)))
        x[at] = data.draw(st.sampled_from(ODD))
    with np.errstate(invalid="ignore"):
        want = by_elements(weights, x, seen)
        there = xp.asarray(x)
        finite = all_finite(xp.xp, there, traced=False)
        assert finite is bool(np.isfinite(x).all())
        got = xp.numpy(masked_product(xp.xp, xp.asarray(weights), there, xp.asarray(seen), finite))
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    assert np.array_equal(got[np.isfinite(want)], want[np.isfinite(want)])


def test_weights_that_are_not_finite_stay_in_their_rows(xp: Library) -> None:
    seen = np.array([[1, 0], [1, 1]], bool)
    weights, x = np.array([[math.nan, 0.0], [1.0, 2.0]]), np.array([[1.0], [math.inf]])
    with np.errstate(invalid="ignore"):
        got = masked_product(xp.xp, xp.asarray(weights), xp.asarray(x), xp.asarray(seen), False)
    assert np.isfinite(xp.numpy(got)[:, 0]).tolist() == [False, False]
    got = masked_product(xp.xp, xp.asarray(weights[:, ::-1]), xp.asarray(x), xp.asarray(seen), False)
    assert np.isnan(xp.numpy(got)[0, 0])


def test_unknown_bad_rows_are_kept_from_tiles_where_nobody_sees_them(xp: Library) -> None:
    """Traced: no number can be looked at, but a mask can be applied."""
    seen = np.array([[1, 0, 1], [1, 0, 0]], bool)
    x = xp.asarray(np.array([[1.0], [math.nan], [3.0]]))
    finite = all_finite(xp.xp, x, traced=True)
    assert finite is None
    got = masked_product(xp.xp, xp.asarray(seen * 1.0), x, xp.asarray(seen), finite)
    assert xp.numpy(got)[:, 0].tolist() == [4.0, 1.0]


def test_the_guard_traces() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as jnp

    def run(w: Any, x: Any, seen: Any) -> Any:
        return masked_product(jnp, w, x, seen, all_finite(jnp, x, traced=True))

    seen = np.array([[1, 0, 1], [1, 0, 0]], bool)
    got = jax.jit(run)(seen * 1.0, np.array([[1.0], [math.nan], [3.0]]), seen)
    assert np.asarray(got)[:, 0].tolist() == [4.0, 1.0]


def test_where_all_is_seen_a_nan_goes_everywhere() -> None:
    got = masked_product(np, np.ones((2, 2)), np.array([[math.nan, 1.0], [1.0, 1.0]]), None, False)
    assert np.isnan(got[:, 0]).all() and np.array_equal(got[:, 1], [2, 2])


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (0, 4, 3), (2, 4, 0)], ids=str)
def test_operands_without_elements_are_finite(xp: Library, shape: tuple[int, ...]) -> None:
    assert all_finite(xp.xp, xp.asarray(np.zeros(shape)), traced=False) is True
