"""Arrays of any library to NumPy and back, for comparing and for drawing examples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringcore.dtypes import dtype_name


class _Format(NamedTuple):
    """A binary floating-point format."""

    digits: int  # of the significand, in bits
    smallest: int  # exponent of normal numbers
    largest: int


_FORMATS = {
    "float64": _Format(53, -1022, 1023),
    "float32": _Format(24, -126, 127),
    "float16": _Format(11, -14, 15),
    "bfloat16": _Format(8, -126, 127),
}


def to_numpy(x: Any) -> NDArray[Any]:
    """``x`` as a NumPy array: float64 for every float dtype, else its own dtype.

    Knows torch (also bfloat16, also when it requires a gradient), JAX, array-api-strict and CuPy by what
    their arrays offer, without importing them.

    Examples
    --------
    >>> import numpy as np
    >>> to_numpy(np.ones(2, dtype="float32"))
    array([1., 1.])
    """
    if hasattr(x, "detach"):  # torch
        x = x.detach().cpu()
        x = x.double() if x.is_floating_point() else x
    elif hasattr(x, "get") and hasattr(x, "__cuda_array_interface__"):  # CuPy
        x = x.get()
    elif not hasattr(x, "__array__") and hasattr(x, "__dlpack__"):
        x = np.from_dlpack(x)
    array = np.asarray(x)
    return array.astype(np.float64) if dtype_name(array.dtype) in _FORMATS else array


def round_to(values: Any, dtype: str) -> NDArray[np.float64]:
    """The nearest numbers that ``dtype`` can hold, as float64; for bfloat16 without a library that has it.

    Examples
    --------
    >>> float(round_to(1.001, "bfloat16")), float(round_to(1.01, "bfloat16"))
    (1.0, 1.0078125)
    """
    x = np.asarray(values, dtype=np.float64)
    if dtype == "bfloat16":
        fraction, exponent = np.frexp(x)
        return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8))
    return x.astype(dtype).astype(np.float64)


def from_numpy(xp: Any, values: Any, dtype: str) -> Any:
    """An array of ``xp`` and of the dtype of this name ('bool', 'float32', 'bfloat16', ...).

    NumPy's bfloat16 is that of ml_dtypes.
    """
    if hasattr(xp, dtype):
        return xp.asarray(np.array(values), dtype=getattr(xp, dtype))
    if dtype == "bfloat16" and xp.__name__ in ("numpy", "array_api_compat.numpy"):
        import ml_dtypes

        return xp.asarray(np.asarray(values).astype(ml_dtypes.bfloat16))
    raise TypeError(f"dtype must be one that {xp.__name__} has. Got {dtype!r}.")


def half_ulp(x: Any, dtype: object) -> NDArray[np.float64]:
    """Half the distance between neighbours of ``dtype`` at ``|x|``: the largest error of rounding to it.

    Examples
    --------
    >>> float(half_ulp(1.5, "float32")) == 2.0**-24
    True
    """
    form = _FORMATS[dtype_name(dtype)]
    size = np.abs(np.asarray(x, dtype=np.float64))
    _, exponent = np.frexp(size)
    exponent = np.where(size == 0, form.smallest, np.maximum(exponent - 1, form.smallest))
    return np.asarray(np.ldexp(0.5, exponent - form.digits + 1))


def overflows_at(dtype: object) -> float:
    """Where rounding to ``dtype`` begins to give inf: half an ulp beyond its largest number.

    Examples
    --------
    >>> overflows_at("float16")
    65520.0
    """
    form = _FORMATS[dtype_name(dtype)]
    with np.errstate(over="ignore"):
        return float(np.ldexp(2 - 2.0**-form.digits, form.largest))
