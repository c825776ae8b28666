"""The exponential function of compiled kernels, against mpmath's and the long double's."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.both import need_compiled

need_compiled()

from numba import njit  # noqa: E402
from ringcore_numpy.compiled.exponential import exp  # noqa: E402

UINT = {np.float32: np.uint32, np.float64: np.uint64}
LN2 = math.log(2)
FLOATS = pytest.mark.parametrize("kind", [np.float32, np.float64])


@njit
def exps(x: Any) -> Any:
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = exp(x[i])
    return out


def least(kind: Any) -> float:
    """The exponent of the smallest normal number: below, the result is 0."""
    return {np.float32: -126, np.float64: -1022}[kind] * LN2


def greatest(kind: Any) -> float:
    """Up to here the result is finite: half a power of two less than what the dtype could hold."""
    return {np.float32: 127.5, np.float64: 1023.5}[kind] * LN2


def ulps(x: np.ndarray) -> np.ndarray:
    """Error of each exponential in units of the last place of the true one."""
    x64 = x.astype(np.float64)
    true = np.exp(x64 if x.dtype == np.float32 else x.astype(np.longdouble))
    return np.abs(exps(x).astype(true.dtype) - true) / np.spacing(true.astype(x.dtype)).astype(true.dtype)


@FLOATS
def test_within_two_ulp_wherever_the_result_is_normal(kind: Any) -> None:
    """At random, evenly and by size, down to the tiniest; and on either side of all n ln 2 / 2."""
    rng = np.random.default_rng(0)
    low, high = least(kind), greatest(kind)
    evenly = rng.uniform(low, high, 1_000_000)
    by_size = rng.choice([-1, 1], 200_000) * np.exp2(rng.uniform(-70, 6, 200_000))
    halves = np.arange(math.ceil(2 * low / LN2), math.floor(2 * high / LN2)) * (LN2 / 2)
    x = np.concatenate([evenly, by_size, *(halves + kind(1e-6) * n for n in range(-20, 21))]).astype(kind)
    x = x[(x >= low) & (x < high)]
    worst = ulps(x).max()
    assert worst < 2, worst


@pytest.mark.parametrize("at", [least(np.float32), greatest(np.float32), -LN2 / 2, LN2 / 2, LN2, -87.0, 88.0])
def test_every_float32_near_a_border(at: float) -> None:
    near = np.float32(at).view(np.uint32) + np.arange(-100_000, 100_000)
    x = near.astype(np.uint32).view(np.float32)
    x = x[(x >= least(np.float32)) & (x < greatest(np.float32))]
    assert x.size >= 100_000 - 1 and ulps(x).max() < 2


@FLOATS
def test_against_mpmath(kind: Any) -> None:
    """What the other tests compare with is an implementation, too, whose accuracy nobody promises."""
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    x = np.random.default_rng(1).uniform(least(kind), greatest(kind), 2000).astype(kind)
    with mpmath.workdps(40):
        for number, got in zip(x, exps(x), strict=True):
            true = mpmath.exp(float(number))
            assert abs(mpmath.mpf(float(got)) - true) < 2 * float(np.spacing(kind(float(true))))


@FLOATS
def test_exactly_zero_where_the_result_is_not_normal(kind: Any) -> None:
    border = kind(least(kind))
    below = [
        np.nextafter(border, kind(-np.inf)) - kind(1e-4),
        -kind(90),
        -kind(745),
        -kind(1e30),
        -np.finfo(kind).max,
    ]
    x = np.concatenate(
        [np.array(below, kind), np.linspace(-2000, 1.001 * least(kind), 999).astype(kind), [-np.inf]]
    )
    x = x[x < 1.0001 * least(kind)].astype(kind)
    assert x.size > 900 and (exps(x).view(UINT[kind]) == 0).all()


@FLOATS
def test_infinite_where_the_result_is_too_large(kind: Any) -> None:
    """And for the last half power of two before that: kernels take exponentials of what is not positive."""
    x = np.array([90, 100, 710, 1000, 1e10, 3e38, np.finfo(kind).max, np.inf, 128.5 * LN2, 88.75], kind)
    x = x[x > np.log(np.finfo(kind).max)]
    assert x.size and (exps(x) == np.inf).all()


@FLOATS
def test_one_of_zero(kind: Any) -> None:
    """Of the largest score itself: exactly, so that a row of one key has the weight 1."""
    tiny = np.finfo(kind).smallest_subnormal
    assert (exps(np.array([0.0, -0.0, tiny, -tiny], kind)) == 1).all()


@FLOATS
@given(data=st.data())
def test_nan_stays_nan_whatever_its_sign_and_payload(kind: Any, data: Any) -> None:
    """Among ordinary numbers, which are done in the same vector."""
    mantissa = np.finfo(kind).nmant
    quiet = 1 << (mantissa - 1)
    payload = data.draw(st.integers(0, 2 * quiet - 1)) | data.draw(st.sampled_from([1, quiet]))
    sign = data.draw(st.integers(0, 1)) << (np.finfo(kind).bits - 1)
    infinity = int(np.array(np.inf, kind).view(UINT[kind]))
    x = data.draw(st.lists(st.floats(-80, 80), min_size=1, max_size=40))
    x = np.array(x, kind)
    at = data.draw(st.integers(0, x.size - 1))
    x.view(UINT[kind])[at] = sign | infinity | payload
    found = exps(x)
    assert np.isnan(found[at]) and np.isnan(found).sum() == 1


@FLOATS
def test_it_is_vectorised(kind: Any) -> None:
    """One number at a time would be several times slower, and nothing but the time would tell."""
    exps(np.zeros(1, kind))
    code = "".join(exps.inspect_asm().values())
    assert re.search(r"v?(mul|fn?madd\d*)p[sd]\b|\bfm(ul|la)\s+v\d+\.[24][sd]", code)
