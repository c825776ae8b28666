"""Which dtype accumulates for which, told by name so that bfloat16 works without a common type."""

from __future__ import annotations

import importlib
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from ringcore.protocols import Array

_ACCUMULATES = {"float64": "float64", "float32": "float32", "float16": "float32", "bfloat16": "float32"}
_UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def dtype_name(dtype: object) -> str:
    """'float32' for the float32 of any array library.

    Examples
    --------
    >>> import numpy as np
    >>> dtype_name(np.dtype("float32")), dtype_name(np.float16)
    ('float32', 'float16')
    """
    if isinstance(dtype, np.dtype):
        return _numpy_name(dtype)
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name).rpartition(".")[2]


@lru_cache(maxsize=64)  # NumPy makes the name anew each time, which takes microseconds
def _numpy_name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def is_supported(dtype: object) -> bool:
    """Whether attention computes in this dtype: float64, float32, float16, bfloat16."""
    return dtype_name(dtype) in _ACCUMULATES


def accumulation_name(dtype: object) -> str:
    """Name of the dtype that sums are kept in: float64 for float64, else float32."""
    return _ACCUMULATES[dtype_name(dtype)]


def accumulation_dtype(xp: Array, dtype: object) -> Array:
    """The accumulation dtype as an object of the namespace ``xp``."""
    return getattr(xp, accumulation_name(dtype))


def dtype_of(xp: Array, name: str) -> Array:
    """The dtype that a namespace has under a name.

    Raises
    ------
    TypeError
        If it has none.
    """
    found = getattr(xp, name, None)
    if found is None and name == "bfloat16":  # NumPy has it from this package
        with suppress(ModuleNotFoundError):
            found = importlib.import_module("ml_dtypes").bfloat16
    if found is None:
        raise TypeError(f"dtype must be one that {xp.__name__} has. Got {name}. Choose another one.")
    return found


def unit_roundoff(dtype: object) -> float:
    """Largest relative error of one rounding to nearest: 2**-24 for float32.

    Reference: N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 2.1.
    """
    return _UNIT_ROUNDOFF[dtype_name(dtype)]
