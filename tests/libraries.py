"""The array libraries that tests run over, each behind the same four names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Array = Any


@dataclass(frozen=True)
class Library:
    """An array library as tests see it.

    Attributes
    ----------
    name : str
        'numpy', 'numpy-readonly', 'array-api-strict', 'torch' or 'jax'.
    xp : namespace
        What `array_api_compat.array_namespace` gives for its arrays.
    asarray : callable
        A new C-contiguous array of the library with the values and dtype of a NumPy array.
    numpy : callable
        The values and dtype of an array of the library, as a NumPy array.
    """

    name: str
    xp: Any
    asarray: Callable[[npt.ArrayLike], Array]
    numpy: Callable[[Array], npt.NDArray[Any]]

    def __repr__(self) -> str:
        return self.name


def _copy(x: npt.ArrayLike) -> npt.NDArray[Any]:
    return np.array(x, order="C")


def _numpy() -> Library:
    import array_api_compat.numpy as xp

    return Library("numpy", xp, _copy, np.asarray)


def _numpy_readonly() -> Library:
    """NumPy whose inputs cannot be written to: the cheapest test that they are not."""
    import array_api_compat.numpy as xp

    def asarray(x: npt.ArrayLike) -> Array:
        out = _copy(x)
        out.flags.writeable = False
        return out

    return Library("numpy-readonly", xp, asarray, np.asarray)


def _array_api_strict() -> Library:
    """The standard's latest version, none of its optional parts."""
    xp = pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    xp.reset_array_api_strict_flags()  # its default version of the standard is the latest released
    xp.set_array_api_strict_flags(boolean_indexing=False, data_dependent_shapes=False, enabled_extensions=())
    return Library("array-api-strict", xp, lambda x: xp.asarray(_copy(x)), np.asarray)


def _torch() -> Library:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import array_api_compat.torch as xp

    # torch and NumPy have no bfloat16 in common: its bits travel as uint16.
    def asarray(x: npt.ArrayLike) -> Array:
        out = _copy(x)
        if out.dtype.name == "bfloat16":
            return torch.from_numpy(out.view(np.uint16)).view(torch.bfloat16)
        return torch.from_numpy(out)

    def numpy(x: Array) -> npt.NDArray[Any]:
        x = x.detach().cpu()
        if x.dtype == torch.bfloat16:
            import ml_dtypes

            return np.asarray(x.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16))
        return np.asarray(x.numpy())

    return Library("torch", xp, asarray, numpy)


def _jax() -> Library:
    pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as xp

    return Library("jax", xp, lambda x: xp.array(_copy(x)), np.asarray)


LIBRARIES: dict[str, Callable[[], Library]] = {
    "numpy": _numpy,
    "numpy-readonly": _numpy_readonly,
    "array-api-strict": _array_api_strict,
    "torch": _torch,
    "jax": _jax,
}
