"""Dtypes by name, over the libraries and types that spell them differently."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ringcore.dtypes import accumulation_dtype, accumulation_name, dtype_name, is_supported, unit_roundoff
from tests.libraries import Library

SUPPORTED = {"float64": "float64", "float32": "float32", "float16": "float32", "bfloat16": "float32"}
OTHERS = ("int8", "int64", "uint16", "bool", "complex64")


def test_names_of_dtypes_of_arrays(xp: Library) -> None:
    for name in ("float64", "float32", "int32", "bool"):
        x = xp.asarray(np.zeros(2, name))
        assert dtype_name(x.dtype) == dtype_name(getattr(xp.xp, name)) == name


@pytest.mark.parametrize(("dtype", "name"), [
    (np.float16, "float16"), (np.dtype("f8"), "float64"), (np.dtype(">f4"), "float32"), (np.bool_, "bool"),
    (ml_dtypes.bfloat16, "bfloat16"), (np.dtype(ml_dtypes.bfloat16), "bfloat16"),
    ("torch.bfloat16", "bfloat16"), ("float32", "float32"), (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"),
], ids=str)  # fmt: skip
def test_names_of_dtypes_alone(dtype: Any, name: str) -> None:
    assert dtype_name(dtype) == name


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_bfloat16_of_libraries_that_have_it(library: str) -> None:
    xp = pytest.importorskip(library, reason=f"{library.partition('.')[0]} is not installed")
    assert dtype_name(xp.bfloat16) == dtype_name(xp.zeros(1, dtype=xp.bfloat16).dtype) == "bfloat16"
    assert accumulation_dtype(xp, xp.bfloat16) == xp.float32


def test_what_is_supported_and_what_sums_are_kept_in(xp: Library) -> None:
    for name, wide in SUPPORTED.items():
        assert is_supported(name) and accumulation_name(name) == wide
        assert accumulation_dtype(xp.xp, name) == getattr(xp.xp, wide)
    assert not any(is_supported(name) for name in OTHERS)
    assert not is_supported(ml_dtypes.float8_e5m2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_unit_roundoff_is_the_largest_error_of_one_rounding(dtype: Any) -> None:
    """Half the gap above 1, found by asking the type itself."""
    u, one = unit_roundoff(dtype), np.asarray(1.0, dtype)
    assert float(np.asarray(1 + 2 * u, dtype)) == 1 + 2 * u
    assert np.asarray(1 + 1.01 * u, np.float64).astype(dtype) > one
    assert np.asarray(1 + 0.99 * u, np.float64).astype(dtype) == one
