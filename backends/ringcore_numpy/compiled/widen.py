"""16-bit floats, which compiled code has no type for: converted to float32 a tile at a time.

float16 comes in as int16, bfloat16 as uint16 (`as_compiled`): so the type says what the bits are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ringcore.dtypes import dtype_name
from ringcore_numpy.compiled.instructions import from_half
from ringcore_numpy.compiled.options import OPTIONS

Array = Any

_MOST = 2**31
"""Elements from one row to the next: BLAS counts in 32 bits."""

_BITS = {"float16": np.dtype(np.int16), "bfloat16": np.dtype(np.uint16)}


def as_compiled(x: Array) -> Array:
    """A view of an array for compiled code: read-only, each row without gaps and aligned; else a copy.

    Rows may lie anywhere: with the heads last they are read by their strides.
    """
    itemsize = x.dtype.itemsize
    steps = [stride % itemsize for stride in x.strides]
    row = x.strides[-2] if x.ndim > 1 and x.shape[-2] > 1 else x.shape[-1] * itemsize
    rows_fit = x.shape[-1] * itemsize <= row < itemsize * _MOST
    if (x.shape[-1] > 1 and x.strides[-1] != itemsize) or any(steps) or not x.flags.aligned or not rows_fit:
        x = np.array(x, order="C")
    view = x.view(_BITS.get(dtype_name(x.dtype), x.dtype))
    view.flags.writeable = False
    return view


def number(x: Any) -> Any:
    """An element as float32 or float64; in compiled code only."""
    raise NotImplementedError


@overload(number, strict=False, jit_options=OPTIONS)
def _number(x: Any) -> Callable[[Any], Any]:
    if isinstance(x, types.Float):
        return lambda x: x
    return lambda x: from_half(x)


def tile_of(x: Array, begin: int, end: int, room: Array) -> Array:
    """Rows ``begin`` to ``end`` of a matrix: themselves, or 16-bit ones converted into ``room``."""
    raise NotImplementedError


@overload(tile_of, strict=False, jit_options=OPTIONS)
def _tile_of(x: Any, begin: Any, end: Any, room: Any) -> Callable[..., Any]:
    if isinstance(x.dtype, types.Float):
        return lambda x, begin, end, room: x[begin:end]

    def converted(x: Any, begin: Any, end: Any, room: Any) -> Any:
        for i in range(begin, end):
            for j in range(x.shape[1]):
                room[i - begin, j] = from_half(x[i, j])
        return room[: end - begin]

    return converted
