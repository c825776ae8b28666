"""Arrays to NumPy and back, and the spacing of the formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ringcore.testing import from_numpy, half_ulp, round_to, to_numpy
from ringcore.testing.arrays import overflows_at

NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "bool"])
def test_arrays_of_every_library_go_there_and_back(xp, dtype):
    if xp.name == "array-api-strict" and dtype in {"float16", "bfloat16"}:
        with pytest.raises(TypeError, match="dtype must be one that array_api_strict has"):
            from_numpy(xp.xp, [1.0], dtype)
        return
    values = np.array([[0.0, 1.5, -2.0]]) if dtype not in {"int64", "bool"} else np.array([[0, 1, 1]])
    array = from_numpy(xp.xp, values, dtype)
    assert str(array.dtype).rpartition(".")[2] == dtype
    back = to_numpy(array)
    assert isinstance(back, np.ndarray)
    assert back.dtype == (np.float64 if "float" in dtype else dtype)
    np.testing.assert_array_equal(back, values)


def test_a_new_array_does_not_share_memory():
    x = np.zeros(3)
    array = from_numpy(np, x, "float64")
    array[0] = 1
    assert x[0] == 0


def test_arrays_that_require_a_gradient():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert to_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", NUMPY)
def test_rounding_is_that_of_the_format(dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.standard_normal(2000) * 10.0 ** rng.integers(-3, 4, 2000), [0.0, np.inf, -np.inf]]
    )
    np.testing.assert_array_equal(round_to(x, dtype), x.astype(NUMPY[dtype]).astype(np.float64))
    np.testing.assert_array_equal(round_to(round_to(x, dtype), dtype), round_to(x, dtype))


@pytest.mark.parametrize("dtype", NUMPY)
def test_half_an_ulp_is_half_the_distance_of_neighbours(dtype):
    x = round_to(np.array([1.0, 1.5, -3.0, 1e-3, 100.0]), dtype)
    above = np.nextafter(np.abs(x).astype(NUMPY[dtype]), NUMPY[dtype](np.inf)).astype(np.float64)
    np.testing.assert_array_equal(half_ulp(x, dtype), (above - np.abs(x)) / 2)


@pytest.mark.parametrize("dtype", NUMPY)
def test_half_an_ulp_of_zero_is_that_of_the_smallest_numbers(dtype):
    smallest = float(np.nextafter(NUMPY[dtype](0), NUMPY[dtype](1)))
    assert float(half_ulp(0.0, dtype)) == smallest / 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_where_rounding_overflows(dtype):
    limit = overflows_at(dtype)
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(limit).astype(NUMPY[dtype]))
    assert np.isfinite(np.float64(limit * (1 - 1e-7)).astype(NUMPY[dtype]))
