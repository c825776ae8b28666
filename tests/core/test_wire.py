"""Packing: bits in, the same bits out."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcore import wire
from ringcore.protocols import ArraySpec
from tests.libraries import Library
from tests.profiles import examples

DTYPES = [
    np.dtype(name)
    for name in (
        "float64",
        "float32",
        "float16",
        ml_dtypes.bfloat16,
        "int64",
        "int8",
        "bool",
        ">f8",
        "complex64",
    )
]


def random_bits(seed: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Every bit pattern: NaNs with payloads, infinities, subnormals among them."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8).view(dtype).reshape(shape)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes())


arrays = st.builds(
    random_bits,
    st.integers(0, 999),
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
    st.sampled_from(DTYPES),
)


@given(st.lists(arrays, max_size=4), st.booleans())
def test_what_is_unpacked_elsewhere_is_what_was_packed(packed: list[np.ndarray], strided: bool) -> None:
    if strided:
        packed = [np.swapaxes(np.repeat(x, 2, axis=-1), 0, -1)[..., ::-1] if x.ndim else x for x in packed]
    there = wire.pack(packed)
    here = wire.blank([ArraySpec(x.shape, x.dtype) for x in packed])
    assert here.specs == there.specs
    assert here.buffer.shape == there.buffer.shape == (wire.nbytes(there.specs),)
    here.buffer[:] = there.buffer  # what a transport does
    got = wire.unpack(here)
    assert all(same_bits(a, b) for a, b in zip(got, packed, strict=True))
    for array in got:
        assert array.flags.c_contiguous
        assert array.size == 0 or array.ctypes.data % 64 == 0, "aligned for vector units"
        assert array.size == 0 or np.shares_memory(array, here.buffer), "views: nothing is copied"


@given(st.lists(arrays, max_size=4))
def test_a_buffer_is_flat_bytes_and_hardly_longer_than_its_arrays(packed: list[np.ndarray]) -> None:
    buffer = wire.pack(packed).buffer
    assert buffer.dtype == np.uint8 and buffer.ndim == 1
    assert buffer.flags.c_contiguous and buffer.flags.writeable
    net = sum(x.nbytes for x in packed)
    assert net <= buffer.nbytes < net + 64 * max(1, len(packed))


def test_a_packed_buffer_shares_no_memory_with_its_arrays() -> None:
    x = np.arange(8.0)
    x.flags.writeable = False
    buffer = wire.pack([x]).buffer
    assert not np.shares_memory(buffer, x)
    assert not np.shares_memory(wire.blank([ArraySpec((8,), x.dtype)]).buffer, buffer), "fresh each time"


@settings(max_examples=examples(60))
@given(data=st.data())
def test_every_library_keeps_its_bits_through_the_host(xp: Library, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(["float64", "float32", "int32", "bool"])))
    shape = data.draw(st.sampled_from([(0,), (), (3,), (2, 0), (2, 3)]))
    x = xp.asarray(bits := random_bits(data.draw(st.integers(0, 99)), shape, dtype))
    (host,) = wire.unpack(wire.pack([wire.to_host(x)]))
    assert same_bits(host, bits)
    back = wire.from_host(host, x)
    assert type(back) is type(x) and back.dtype == x.dtype
    assert same_bits(xp.numpy(back), bits)


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_bfloat16_keeps_all_65536_patterns(name: str) -> None:
    every = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(256, 256)
    if name == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        x = torch.from_numpy(every.view(np.int16)).view(torch.bfloat16)
    elif name == "jax":
        x = pytest.importorskip("jax.numpy", reason="jax is not installed").asarray(every)
    else:
        x = every
    (host,) = wire.unpack(wire.pack([wire.to_host(x)]))
    (there,) = wire.unpack(wire.blank([ArraySpec(tuple(x.shape), x.dtype)]))
    assert host.dtype == there.dtype, "the receiver expects what the sender packs"
    back = wire.from_host(host, x)
    assert type(back) is type(x) and back.dtype == x.dtype
    found = (
        back.view(torch.int16).numpy().view(np.uint16)
        if name == "torch"
        else np.asarray(back).view(np.uint16)
    )
    assert np.array_equal(found.ravel(), np.arange(65536))


def test_torch_arrays_that_require_a_gradient_or_are_strided_go_to_the_host() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.arange(6.0).reshape(2, 3).to(dtype).requires_grad_()
        host = wire.to_host(x.T)
        want = x.detach().float().numpy().T
        got = host if dtype == torch.float32 else host.view(ml_dtypes.bfloat16).astype(np.float32)
        assert np.array_equal(got, want)


def test_accumulator_names_stand_for_dtypes() -> None:
    """A rank expects sums of float32 without holding an array of that dtype."""
    (x,) = wire.unpack(wire.blank([ArraySpec((2, 3), "float32")]))
    assert x.dtype == np.float32 and x.shape == (2, 3)
    assert wire.nbytes([ArraySpec((2, 3), "float32"), ArraySpec((0,), "float64")]) == 64
