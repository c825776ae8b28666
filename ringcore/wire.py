"""Packing of host arrays into one buffer of bytes, bit by bit: NaN payloads and 16-bit types included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from ringcore.protocols import Array, ArraySpec, Wire

_ALIGNMENT = 64  # bytes: a cache line, and what unpacked arrays start at


def pack(arrays: Sequence[np.ndarray]) -> Wire:
    """Copy NumPy arrays into one fresh buffer."""
    wire = blank([ArraySpec(tuple(x.shape), x.dtype) for x in arrays])
    for view, x in zip(unpack(wire), arrays, strict=True):
        view[...] = x
    return wire


def blank(specs: Sequence[ArraySpec]) -> Wire:
    """A fresh buffer that arrays of these shapes and dtypes fit into."""
    specs = tuple(ArraySpec(tuple(s.shape), host_dtype(s.dtype)) for s in specs)
    return Wire(_aligned(sum(_padded(s) for s in specs)), specs)


def over(buffer: np.ndarray, specs: Sequence[ArraySpec]) -> Wire:
    """A wire whose bytes are there already."""
    return Wire(buffer, tuple(ArraySpec(tuple(s.shape), host_dtype(s.dtype)) for s in specs))


def unpack(wire: Wire) -> tuple[np.ndarray, ...]:
    """The arrays in a buffer, as views of it."""
    views, start = [], 0
    for spec in wire.specs:
        stop = start + _nbytes(spec)
        views.append(wire.buffer[start:stop].view(spec.dtype).reshape(spec.shape))
        start += _padded(spec)
    return tuple(views)


def nbytes(specs: Sequence[ArraySpec]) -> int:
    """Bytes on the wire of arrays of these shapes and dtypes."""
    return sum(_padded(ArraySpec(s.shape, host_dtype(s.dtype))) for s in specs)


def host_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype with the same bits; 16-bit integers stand for a bfloat16 that NumPy does not have."""
    if isinstance(dtype, (np.dtype, type)):
        return np.dtype(dtype)
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    return np.dtype("int16") if name == "bfloat16" else np.dtype(name)


def to_host(x: Array) -> np.ndarray:
    """A NumPy array with the same bits as an array of any library that can hand one over."""
    if isinstance(x, np.ndarray):
        return x
    if str(x.dtype) == "torch.bfloat16":  # NumPy knows no bfloat16, and torch no ml_dtypes
        x = x.view(array_namespace(x).int16)
    if hasattr(x, "detach"):
        x = x.detach()
    try:
        return np.asarray(x)
    except TypeError:  # array-api-strict refuses implicit conversion
        return np.from_dlpack(x)


def from_host(x: np.ndarray, like: Array) -> Array:
    """A NumPy array as an array of the library and on the device of ``like``; may share its memory."""
    if isinstance(like, np.ndarray):
        return x
    xp = array_namespace(like)
    if str(like.dtype) == "torch.bfloat16" and x.dtype == np.int16:
        return xp.asarray(x).view(like.dtype).to(device(like))
    return xp.asarray(x, device=device(like))


def _nbytes(spec: ArraySpec) -> int:
    return int(math.prod(spec.shape)) * int(np.dtype(spec.dtype).itemsize)


def _padded(spec: ArraySpec) -> int:
    return -(-_nbytes(spec) // _ALIGNMENT) * _ALIGNMENT


def _aligned(size: int) -> np.ndarray:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size]
