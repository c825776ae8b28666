"""The exponential function, vectorised: within 2 ulp where it is at least 2**-126 (2**-1022), else 0.

NumPy's own is as good, but needs a pass through memory of its own; the C library's takes one number at
a time. NaN stays NaN, exp(-inf) is exactly 0.

Method: with n = round(x / ln 2), exp(x) = 2**n exp(f), f = x - n ln 2 in two steps, so that no bit is lost
(W. J. Cody and W. Waite, *Software Manual for the Elementary Functions*, 1980). exp(f) = 1 + f + f^2 p(f),
p the best polynomial on |f| <= ln 2 / 2 (Remez); its relative error is 3e-9 in float32 and 4e-18 in float64.
Beyond n = 127 (1023), x > 88.3 (709.4), the result is inf: weights are at most about 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ringcore_numpy.compiled.instructions import power_of_two

_LN2 = math.log(2)
_F, _D = np.float32, np.float64

# Adding it rounds to an integer n; the exponent of 2**n, n + 127, is then in the lowest bits of the sum.
_ROUNDER32, _ROUNDER64 = _F(1.5 * 2**23 + 127), _D(1.5 * 2**52 + 1023)


def exp(x: float) -> float:
    """exp(x), of the type of x; in compiled code only."""
    raise NotImplementedError


# The only liberty that the compiler may take: a * b + c as one instruction.
@overload(exp, strict=False, jit_options={"fastmath": {"contract"}})
def _exp(x: Any) -> Callable[[Any], Any] | None:
    if x == types.float32:
        return _exp32
    return _exp64 if x == types.float64 else None


def _exp32(x: Any) -> Any:
    x = _F(89) if x > _F(89) else x  # gives inf
    rounded = x * _F(1 / _LN2) + _ROUNDER32
    n = rounded - _ROUNDER32
    f = (x - n * _F(0.693359375)) - n * _F(-2.12194440e-4)
    p = _F(0.0013814576876152257)
    p = p * f + _F(0.0083687380233172925)
    p = p * f + _F(0.041668389412713361)
    p = p * f + _F(0.16666520475277196)
    p = p * f + _F(0.49999993442270126)
    p = p * f + _F(1)
    p = p * f + _F(1)
    return _F(0) if x < _F(-126 * _LN2) else p * power_of_two(rounded)


def _exp64(x: Any) -> Any:
    x = _D(710) if x > _D(710) else x
    rounded = x * _D(1 / _LN2) + _ROUNDER64
    n = rounded - _ROUNDER64
    f = (x - n * _D(6.93147180369123816490e-1)) - n * _D(1.90821492927058770002e-10)
    p = _D(2.4999920140486782e-8)
    p = p * f + _D(2.7630268706480089e-7)
    p = p * f + _D(2.7557586979089685e-6)
    p = p * f + _D(2.4801493065096292e-5)
    p = p * f + _D(0.00019841269505781973)
    p = p * f + _D(0.0013888888943635490)
    p = p * f + _D(0.0083333333334948416)
    p = p * f + _D(0.041666666666530271946)
    p = p * f + _D(0.16666666666666412027)
    p = p * f + _D(0.5000000000000010591)
    p = p * f + _D(1)
    p = p * f + _D(1)
    return _D(0) if x < _D(-1022 * _LN2) else p * power_of_two(rounded)
