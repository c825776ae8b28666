"""Activation functions and their derivatives in plain array API, accurate to a few ulp.

The standard has no erf, so the normal distribution function that GELU needs is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from array_api_compat import array_namespace

from ringcore.protocols import Array


@dataclass(frozen=True)
class Activation:
    """An elementwise function and its derivative.

    Attributes
    ----------
    value, derivative : callable
        From an array to an array of the same shape and dtype (float32 or float64), without writing
        to it. The derivative is that of ``value`` at the same argument.

    Examples
    --------
    >>> import numpy as np
    >>> square = Activation(lambda z: z * z, lambda z: 2 * z)
    >>> square.derivative(np.array([1.5]))
    array([3.])
    """

    value: Callable[[Array], Array]
    derivative: Callable[[Array], Array]


def normal_cdf(z: Array) -> Array:
    """P(Z <= z) of a standard normal Z, to a few ulp in both tails.

    Parameters
    ----------
    z : array
        float32 or float64.

    Notes
    -----
    Source: W. J. Cody, *Algorithm 715: SPECFUN*, ACM TOMS 19 (1993), function ANORM, after his
    *Rational Chebyshev approximations for the error function*, Math. Comp. 23 (1969).

    Examples
    --------
    >>> import numpy as np
    >>> normal_cdf(np.array([0.0, -1.0, -38.0]))
    array([5.00000000e-001, 1.58655254e-001, 2.88542835e-316])
    """
    xp = array_namespace(z)
    y = xp.clip(xp.abs(z), 0.0, 40.0)  # the tail beyond 38.5 is 0 in float64; inf - inf would be NaN
    tail = _density_scale(xp, y) * _tail_over_exp(xp, y)
    center = xp.clip(y, 0.0, CENTER)
    square = center * center
    center = center * (_horner(square, CENTER_OVER) / _horner(square, CENTER_UNDER))
    tail = xp.where(y <= CENTER, 0.5 - center, tail)
    return xp.where(z < 0.0, tail, 1.0 - tail)


def _tail_over_exp(xp: Any, y: Array) -> Array:
    """P(Z > y) / exp(-y^2 / 2) for y >= 0.67; each branch is kept where it is finite."""
    near = xp.clip(y, CENTER, FAR)
    near = _horner(near, NEAR_OVER) / _horner(near, NEAR_UNDER)
    far = xp.clip(y, FAR, 40.0)
    inverse = 1.0 / (far * far)
    far = (INV_SQRT_2PI - inverse * (_horner(inverse, FAR_OVER) / _horner(inverse, FAR_UNDER))) / far
    return xp.where(y <= FAR, near, far)


def _density_scale(xp: Any, y: Array) -> Array:
    """exp(-y^2 / 2); y is split so that the rounding of y^2 is not amplified by exp."""
    head = xp.floor(y * 16.0) / 16.0  # its square is exact
    return xp.exp(-0.5 * head * head) * xp.exp(-0.5 * (y - head) * (y + head))


def _horner(x: Array, coefficients: Sequence[float]) -> Array:
    """Polynomial, highest power first."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total


def _sigmoid(xp: Any, z: Array) -> Array:
    small = xp.exp(-xp.abs(z))  # never overflows
    return xp.where(z < 0.0, small, xp.ones_like(small)) / (1.0 + small)


def _gelu(z: Array) -> Array:
    return z * normal_cdf(z)


def _gelu_derivative(z: Array) -> Array:
    xp = array_namespace(z)
    y = xp.clip(xp.abs(z), 0.0, 40.0)
    return normal_cdf(z) + z * (INV_SQRT_2PI * _density_scale(xp, y))


def _gelu_tanh(z: Array) -> Array:
    # 0.5 (1 + tanh u) = sigmoid(2u), which does not cancel for negative u
    return z * _sigmoid(array_namespace(z), _twice_u(z))


def _gelu_tanh_derivative(z: Array) -> Array:
    xp = array_namespace(z)
    s = _sigmoid(xp, _twice_u(z))
    near = xp.clip(z, -SATURATED, SATURATED)
    return s + near * s * _sigmoid(xp, -_twice_u(z)) * (TANH_SLOPE * (1.0 + 3.0 * TANH_CUBE * near * near))


def _twice_u(z: Array) -> Array:
    """2 sqrt(2/pi) (z + 0.044715 z^3), of Hendrycks and Gimpel (2016)."""
    near = array_namespace(z).clip(z, -SATURATED, SATURATED)
    return TANH_SLOPE * near * (1.0 + TANH_CUBE * near * near)


def _silu(z: Array) -> Array:
    return z * _sigmoid(array_namespace(z), z)


def _silu_derivative(z: Array) -> Array:
    xp = array_namespace(z)
    s = _sigmoid(xp, z)
    return s + z * s * _sigmoid(xp, -z)


def _relu(z: Array) -> Array:
    xp = array_namespace(z)
    return xp.where(z <= 0.0, xp.zeros_like(z), z)  # so that NaN stays


def _relu_derivative(z: Array) -> Array:
    xp = array_namespace(z)
    return xp.where(z > 0.0, xp.ones_like(z), xp.zeros_like(z))


ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "gelu": Activation(_gelu, _gelu_derivative),
        "gelu_tanh": Activation(_gelu_tanh, _gelu_tanh_derivative),
        "silu": Activation(_silu, _silu_derivative),
        "relu": Activation(_relu, _relu_derivative),
    }
)
"""The activations that have a name."""

TANH_SLOPE = 2.0 * math.sqrt(2.0 / math.pi)
TANH_CUBE = 0.044715
SATURATED = 40.0  # sigmoid(2u) is 0 or 1 far before; z^3 beyond might overflow

INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
CENTER = 0.67448975  # where the tail is 1/4
FAR = math.sqrt(32.0)

# ANORM's numerators and denominators of the three ranges, highest power first.
CENTER_OVER = (
    0.065682337918207449113, 2.2352520354606839287, 161.02823106855587881,
    1067.6894854603709582, 18154.981253343561249,
)  # fmt: skip
CENTER_UNDER = (
    1.0, 47.20258190468824187, 976.09855173777669322, 10260.932208618978205, 45507.789335026729956,
)  # fmt: skip
NEAR_OVER = (
    1.0765576773720192317e-8, 0.39894151208813466764, 8.8831497943883759412, 93.506656132177855979,
    597.27027639480026226, 2494.5375852903726711, 6848.1904505362823326, 11602.651437647350124,
    9842.7148383839780218,
)  # fmt: skip
NEAR_UNDER = (
    1.0, 22.266688044328115691, 235.38790178262499861, 1519.377599407554805, 6485.558298266760755,
    18615.571640885098091, 34900.952721145977266, 38912.003286093271411, 19685.429676859990727,
)  # fmt: skip
FAR_OVER = (
    0.02307344176494017303, 0.21589853405795699, 0.1274011611602473639, 0.022235277870649807,
    0.001421619193227893466, 2.9112874951168792e-5,
)  # fmt: skip
FAR_UNDER = (
    1.0, 1.28426009614491121, 0.468238212480865118, 0.0659881378689285515, 0.00378239633202758244,
    7.29751555083966205e-5,
)  # fmt: skip
