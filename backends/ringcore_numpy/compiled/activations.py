"""The activations of `ringcore.activation`, number by number and without branches, so that they vectorise.

Formulas and constants are those of that module: the normal distribution function is Cody's (ANORM). All its
ranges are computed and one is taken. An exponential below 2**-126 (2**-1022) is 0 here, and with it what is
that small in the tails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from ringcore.activation import (
    CENTER,
    CENTER_OVER,
    CENTER_UNDER,
    FAR,
    FAR_OVER,
    FAR_UNDER,
    INV_SQRT_2PI,
    NEAR_OVER,
    NEAR_UNDER,
    SATURATED,
    TANH_CUBE,
    TANH_SLOPE,
)
from ringcore_numpy.compiled.exponential import exp
from ringcore_numpy.compiled.instructions import polynomial
from ringcore_numpy.compiled.options import OPTIONS

# Inlined whatever its length, else the loop around it would not vectorise; a * b + c may be one instruction.
_INLINED: dict[str, Any] = {**OPTIONS, "fastmath": {"contract"}, "forceinline": True}

Number = Any  # a type of numbers
Function = Callable[[Any], Any]


class Gelu(NamedTuple):
    """By the normal distribution function."""


class GeluTanh(NamedTuple):
    """Its approximation by tanh."""


class Silu(NamedTuple):
    """``z sigmoid(z)``."""


class Relu(NamedTuple):
    """``max(z, 0)``."""


def both(which: Any, z: float) -> tuple[float, float]:
    """An activation, told by the type of ``which``, and its derivative at z; in compiled code only.

    Who uses only one of the two pays only for that: the compiler drops the rest.
    """
    raise NotImplementedError


@overload(both, strict=False, jit_options=_INLINED)
def _both(which: Any, z: Any) -> Callable[[Any, Any], Any]:
    function = njit(**_INLINED)(_MAKERS[which.instance_class](_NUMBERS[z]))
    return lambda which, z: function(z)


_NUMBERS: dict[Any, Number] = {types.float32: np.float32, types.float64: np.float64}


# Each of these makes a function for float32 or float64, T: a Python constant would widen all to float64.

_center_over, _center_under = polynomial(*CENTER_OVER), polynomial(*CENTER_UNDER)
_near_over, _near_under = polynomial(*NEAR_OVER), polynomial(*NEAR_UNDER)
_far_over, _far_under = polynomial(*FAR_OVER), polynomial(*FAR_UNDER)


def _gelu(T: Number) -> Function:
    rounder = T(1.5 * 2.0 ** (19 if T is np.float32 else 48))  # adding it rounds to a multiple of 1/16

    def gelu(z: Any) -> Any:
        y = abs(z)
        y = T(40) if y > T(40) else y
        head = (y + rounder) - rounder  # its square is exact
        scale = exp(T(-0.5) * head * head) * exp(T(-0.5) * (y - head) * (y + head))  # exp(-y^2 / 2)
        square = y * y
        inverse = T(1) / square
        # What is not taken may be inf or NaN.
        over, under = _near_over(y), _near_under(y)
        if y > T(FAR):
            over = T(INV_SQRT_2PI) * _far_under(inverse) - inverse * _far_over(inverse)
            under = y * _far_under(inverse)
        if y <= T(CENTER):
            over = y * _center_over(square)
            under = _center_under(square)
        quotient = over / under
        tail = T(0.5) - quotient if y <= T(CENTER) else scale * quotient  # P(Z > y)
        cdf = tail if z < T(0) else T(1) - tail
        return z * cdf, cdf + z * (T(INV_SQRT_2PI) * scale)

    return gelu


def _gelu_tanh(T: Number) -> Function:
    def gelu_tanh(z: Any) -> Any:
        near = T(-SATURATED) if z < T(-SATURATED) else z
        near = T(SATURATED) if near > T(SATURATED) else near
        cube = T(TANH_CUBE) * near * near
        twice_u = T(TANH_SLOPE) * near * (T(1) + cube)
        small = exp(-abs(twice_u))
        part = T(1) / (T(1) + small)
        other = small * part
        s, c = (other, part) if twice_u < T(0) else (part, other)
        return z * s, s + near * s * c * (T(TANH_SLOPE) * (T(1) + T(3) * cube))

    return gelu_tanh


def _silu(T: Number) -> Function:
    def silu(z: Any) -> Any:
        small = exp(-abs(z))
        part = T(1) / (T(1) + small)
        other = small * part
        s, c = (other, part) if z < T(0) else (part, other)
        return z * s, s + z * s * c

    return silu


def _relu(T: Number) -> Function:
    def relu(z: Any) -> Any:
        return T(0) if z <= T(0) else z, T(1) if z > T(0) else T(0)  # NaN stays

    return relu


_MAKERS = {Gelu: _gelu, GeluTanh: _gelu_tanh, Silu: _silu, Relu: _relu}

ACTIVATIONS: dict[str, tuple[()]] = {
    "gelu": Gelu(),
    "gelu_tanh": GeluTanh(),
    "silu": Silu(),
    "relu": Relu(),
}
"""What to pass as ``which``, by the names of `ringcore.activation.ACTIVATIONS`."""
