"""Compiled activations and their derivatives against mpmath, in units of rounding."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.backends.both import need_compiled

need_compiled()

from numba import njit  # noqa: E402
from ringcore_numpy import NumpyBackend  # noqa: E402
from ringcore_numpy.compiled import hidden  # noqa: E402
from ringcore_numpy.compiled.activations import ACTIVATIONS  # noqa: E402
from ringcore_numpy.compiled.options import OPTIONS  # noqa: E402

mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")

NAMES = ["gelu", "gelu_tanh", "silu", "relu"]
FLOATS = pytest.mark.parametrize("dtype", ["float32", "float64"])
LOWEST = {  # down to here no exponential is below the smallest normal number
    ("gelu", "float32"): -12.9, ("gelu", "float64"): -37.0,
    ("gelu_tanh", "float32"): -9.9, ("gelu_tanh", "float64"): -21.0,
    ("silu", "float32"): -86.0, ("silu", "float64"): -706.0,
    ("relu", "float32"): -9.0, ("relu", "float64"): -9.0,
}  # fmt: skip
BORDERS = [0.67448975, 32**0.5, 0.0, 1 / 32, 1.0, 8.0]


def arguments(name: str, dtype: str) -> np.ndarray:
    """Evenly, near 0, as in a layer, by size, and on both sides of where a range of the formula ends."""
    rng = np.random.default_rng(0)
    parts = [
        rng.uniform(LOWEST[name, dtype], 12, 1500), rng.normal(size=500), rng.uniform(-0.1, 0.1, 200),
        rng.choice([-1, 1], 300) * np.exp2(rng.uniform(-60, 3, 300)),
        *(s * b + 1e-6 * rng.normal(size=20) for b in BORDERS for s in (-1, 1)),
    ]  # fmt: skip
    return np.concatenate(parts).astype(dtype)


def computed(name: str, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The value as forward has it, and as backward has it; the derivative."""
    compiled = NumpyBackend(compiled=True).hidden(name)
    assert compiled is not None
    row = z[None]
    forward = compiled.forward(row.copy(), None, None, None)
    value, slope, none = compiled.backward(row.copy(), None, None, None, np.ones_like(row))
    assert none is None
    return forward[0], value[0], slope[0]


def exact(name: str, z: float) -> tuple[Any, Any, Any]:
    """Value, derivative, and the sum of the sizes of the derivative's two terms, which may cancel."""
    z = mpmath.mpf(z)
    if name == "relu":
        return max(z, 0), mpmath.mpf(z > 0), mpmath.mpf(1)
    if name == "gelu":
        s, ds = mpmath.ncdf(z), mpmath.npdf(z)
    else:
        cubic = mpmath.mpf("0.044715")
        slope = 2 * mpmath.sqrt(2 / mpmath.pi)
        u, du = (z, 1) if name == "silu" else (slope * (z + cubic * z**3), slope * (1 + 3 * cubic * z**2))
        s = 1 / (1 + mpmath.exp(-u))
        ds = s / (1 + mpmath.exp(u)) * du
    return z * s, s + z * ds, s + abs(z * ds)


def amplification(name: str, z: np.ndarray) -> np.ndarray:
    """What the relative rounding of the exponent's argument is multiplied by."""
    if name != "gelu_tanh":
        return np.zeros_like(z)  # silu: the argument is exact; gelu: y^2 is split
    z = np.maximum(-z, 0)  # sigmoid is flat on the other side
    return 1.6 * (z + 0.044715 * z**3)


@FLOATS
@pytest.mark.parametrize("name", NAMES)
def test_value_and_derivative_are_right_to_a_few_roundings(name: str, dtype: str) -> None:
    z = arguments(name, dtype)
    forward, value, slope = computed(name, z)
    u = float(np.finfo(dtype).eps) / 2
    worst_value = worst_slope = 0.0
    with mpmath.workdps(40):
        for i, more in enumerate(3 * amplification(name, z.astype(np.float64))):
            v, d, size = exact(name, float(z[i]))
            if v != 0:
                off = max(abs(float(forward[i]) - v), abs(float(value[i]) - v))
                worst_value = max(worst_value, float(off / abs(v) / u) - more)
            worst_slope = max(worst_slope, float(abs(float(slope[i]) - d) / size / u) - more)
    limits = {"gelu": (10, 8), "gelu_tanh": (5, 5), "silu": (5, 6), "relu": (0, 0)}[name]
    assert worst_value <= limits[0] and worst_slope <= limits[1], (worst_value, worst_slope)


@FLOATS
@pytest.mark.parametrize("name", NAMES)
def test_deep_in_the_tail_it_goes_to_zero_and_nothing_overflows(name: str, dtype: str) -> None:
    top = np.finfo(dtype).max
    z = np.concatenate([np.geomspace(-LOWEST[name, dtype], 1e4, 3000) * -1, [-top, -1e30]]).astype(dtype)
    for got in computed(name, z):
        assert np.all(np.abs(got) <= np.abs(got[0])) and np.abs(got[0]) < 1e-33 and not np.any(got[-2:])
    for got in computed(name, -z[z < -40])[:2]:
        assert np.array_equal(got, -z[z < -40])


@FLOATS
@pytest.mark.parametrize("name", NAMES)
def test_biases_gate_and_cotangent_enter_as_the_formula_says(name: str, dtype: str) -> None:
    """Rows of a length that no vector divides, and more than one task."""
    rng = np.random.default_rng(1)
    z, gate, dh = (rng.normal(scale=0.5, size=(90, 1003)).astype(dtype) for _ in range(3))
    b_in, b_gate = (rng.normal(size=1003).astype(dtype) for _ in range(2))
    b_in.flags.writeable = False
    assert z.size > hidden._TASK_NUMBERS
    compiled = NumpyBackend(compiled=True).hidden(name)
    assert compiled is not None
    _, value, slope = computed(name, (z + b_in).ravel())
    value, slope, factor = value.reshape(z.shape), slope.reshape(z.shape), gate + b_gate
    h, dz, dgate = compiled.backward(z.copy(), b_in, gate.copy(), b_gate, dh.copy())
    close = {"rtol": 32 * float(np.finfo(dtype).eps), "atol": 0}
    np.testing.assert_allclose(h, value * factor, **close)
    np.testing.assert_allclose(dz, dh * factor * slope, **close)
    np.testing.assert_allclose(dgate, dh * value, **close)
    np.testing.assert_allclose(compiled.forward(z.copy(), b_in, gate.copy(), b_gate), h, **close)
    h, dz, dgate = compiled.backward(z.copy(), b_in, None, None, dh.copy())
    np.testing.assert_allclose(h, value, **close)
    assert dgate is None
    np.testing.assert_allclose(dz, dh * slope, **close)


@pytest.mark.parametrize("name", NAMES)
def test_the_loops_are_vectorised(name: str) -> None:
    """One number at a time they would be an order of magnitude slower, with the same results."""
    x = np.ones((1, 3), np.float32)
    compiled = njit(**OPTIONS)(hidden._backward)  # anew: code read from disk cannot be looked at
    compiled(ACTIVATIONS[name], x, x.copy(), x.copy(), np.ones((2, 3), np.float32), 0, 1)
    (code,) = compiled.inspect_llvm().values()
    for operation in ("fmul", "fadd", "fdiv") if name != "relu" else ("fmul", "fadd"):
        found = re.findall(rf" = {operation} (?:contract )?<", code)
        assert len(found) >= 2, f"{operation} of vectors, in the loop with gate and in that without"
