"""16-bit floats in compiled code, and how arrays come there."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.backends.both import need_compiled

need_compiled()

from numba import njit  # noqa: E402
from ringcore_numpy.compiled.widen import as_compiled, number, tile_of  # noqa: E402

HALVES = pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])


@njit
def widened(x: Any) -> Any:
    out = np.empty(x.shape, np.float32)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = number(x[i, j])
    return out


@njit
def rows_of(x: Any, begin: int, end: int, room: Any) -> Any:
    return tile_of(x, begin, end, room)


def every(half: Any) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(half).reshape(256, 256)


@HALVES
def test_every_number_of_16_bits_is_converted_exactly(half: Any) -> None:
    """Subnormal ones, both zeros, infinities; NaN to NaN."""
    x = every(half)
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float32)
    number = ~np.isnan(want)

    def tile(begin: int, end: int) -> Any:
        return rows_of(as_compiled(x), begin, end, np.full((130, 256), np.nan, np.float32))

    for got, part in (
        (widened(as_compiled(x)), slice(0, 256)),
        (tile(3, 100), slice(3, 100)),
        (tile(126, 256), slice(126, 256)),
    ):
        assert got.dtype == np.float32 and got.shape == want[part].shape
        assert np.array_equal(got.view(np.uint32)[number[part]], want[part].view(np.uint32)[number[part]])
        assert np.isnan(got[~number[part]]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_others_are_neither_converted_nor_copied(dtype: Any) -> None:
    x = np.arange(12.0, dtype=dtype).reshape(4, 3)
    tile = rows_of(as_compiled(x), 1, 3, np.empty((4, 3), dtype))
    assert np.shares_memory(tile, x) and np.array_equal(tile, x[1:3])


def views(x: np.ndarray) -> dict[str, tuple[np.ndarray, bool]]:
    """The numbers of x (H, L, D) in other places, and whether a copy may be made of them."""
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    record = np.zeros(x.shape, np.dtype([("x", x.dtype), ("y", np.uint8)]))
    record["x"] = x
    rows = np.zeros(x.shape[:-1], np.dtype([("x", x.dtype, x.shape[-1:]), ("y", np.uint8)]))
    rows["x"] = x
    return {
        "as they are": (x, False),
        "heads last": (np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1), False),
        "rows apart": (np.repeat(x, 3, axis=1)[:, ::3], False),
        "part of the columns": (np.concatenate([x, x], axis=-1)[..., : x.shape[-1]], False),
        "columns": (np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2), True),
        "columns apart": (np.repeat(x, 2, axis=-1)[..., ::2], True),
        "rows backwards": (np.ascontiguousarray(x[:, ::-1])[:, ::-1], True),
        "columns backwards": (np.ascontiguousarray(x[..., ::-1])[..., ::-1], True),
        "unaligned": (unaligned, True),
        "between bytes": (record["x"], True),
        "rows between bytes": (rows["x"], True),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("place", views(np.zeros((2, 4, 3))))
def test_arrays_come_as_they_are_or_as_a_copy_with_whole_rows(dtype: Any, place: str) -> None:
    x, copied = views(np.random.default_rng(0).standard_normal((2, 4, 3)).astype(dtype))[place]
    got = as_compiled(x)
    assert not got.flags.writeable and got.strides[-1] == got.itemsize and got.strides[-2] >= 3 * got.itemsize
    assert np.array_equal(got.view(x.dtype), x)
    assert np.shares_memory(got, x) != copied
    assert x.flags.writeable, "only the view is read-only"


def test_one_row_for_all_is_copied() -> None:
    """Strides 0, which BLAS does not take."""
    x = np.broadcast_to(np.float32(3), (2, 4, 3))
    assert as_compiled(x).strides == (48, 12, 4)
