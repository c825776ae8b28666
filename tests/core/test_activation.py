"""Activations against the C library, decimal arithmetic and each other."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from ringcore.activation import ACTIVATIONS, normal_cdf

RNG = np.random.default_rng(20)


def exact_cdf(z: float) -> float:
    """By math.erfc at the rounded argument, corrected for that rounding, which the tail would amplify."""
    with localcontext() as context:
        context.prec = 40
        exact = -Decimal(z) / Decimal(2).sqrt()
        t = float(exact)
        delta = float(exact - Decimal(t))
    return 0.5 * (math.erfc(t) - delta * 2 / math.sqrt(math.pi) * math.exp(-t * t))


@pytest.mark.parametrize(("dtype", "lowest"), [("float64", -37.0), ("float32", -12.5)])
def test_normal_cdf_is_right_to_a_few_ulp_in_both_tails(xp, dtype, lowest):
    borders = [0.67448975, math.sqrt(32)]
    z = np.concatenate([RNG.uniform(lowest, 9, 2000), RNG.normal(size=500), np.linspace(-1e-9, 1e-9, 9)])
    z = np.concatenate([z, borders, np.negative(borders), np.nextafter(borders, 9)]).astype(dtype)
    got = xp.numpy(normal_cdf(xp.asarray(z)))
    assert got.dtype == z.dtype
    want = np.array([exact_cdf(float(x)) for x in z])
    assert np.max(np.abs(got - want) / want) <= 12 * np.finfo(dtype).eps / 2


def test_the_correction_of_the_reference_matters():
    """Without it the reference itself would be off by hundreds of ulp in the tail."""
    z = RNG.uniform(-37, -30, 200)
    plain = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    assert np.max(np.abs(plain / normal_cdf(z) - 1)) > 100 * 2**-53


def test_normal_cdf_at_the_ends():
    z = np.array([-np.inf, -40.0, 0.0, 40.0, np.inf, np.nan])
    assert np.array_equal(normal_cdf(z), [0, 0, 0.5, 1, 1, np.nan], equal_nan=True)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_are_those_of_the_values(name):
    act, h = ACTIVATIONS[name], 1e-5
    z = RNG.uniform(-12, 12, 4000)
    z = z[np.abs(z) > h]  # relu has a kink at 0
    slope = (act.value(z + h) - act.value(z - h)) / (2 * h)
    assert np.max(np.abs(act.derivative(z) - slope)) < 1e-9


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_overflows(name, dtype):
    top = np.finfo(dtype).max
    z = np.array([-top, -1e30, -1000, -0.0, 0.0, 1000, 1e30, top], dtype)
    with np.errstate(all="raise", under="ignore"):
        value, slope = ACTIVATIONS[name].value(z), ACTIVATIONS[name].derivative(z)
    assert value.dtype == slope.dtype == z.dtype
    assert np.array_equal(value, np.maximum(z, 0))
    assert np.array_equal(slope[[0, 1, 2, 5, 6, 7]], [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_stays_and_touches_nothing_else(name):
    value = ACTIVATIONS[name].value(np.array([np.nan, 1.0]))
    assert np.isnan(value[0]) and np.isfinite(value[1])


def test_tails_keep_their_relative_accuracy():
    """1 + erf and 1 + tanh cancel to 0 here."""
    assert ACTIVATIONS["gelu"].value(np.array(-10.0)) == pytest.approx(-10 * exact_cdf(-10.0), rel=1e-14)
    u = math.sqrt(2 / math.pi) * (6 + 0.044715 * 6**3)
    tail = -6 * math.exp(-2 * u) / (1 + math.exp(-2 * u))
    assert ACTIVATIONS["gelu_tanh"].value(np.array(-6.0)) == pytest.approx(tail, rel=1e-13)
