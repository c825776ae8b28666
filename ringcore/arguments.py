"""What the arguments of an attention call must be: the rule, what was expected, what was got, the cure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

from ringcore.dtypes import dtype_name, is_supported
from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.meter import Meter
from ringcore.protocols import Array, Backend
from ringcore.ring import Ring


def of_one_library(*arrays: Any) -> bool:
    """Whether all are arrays, and of the same library."""
    if not all(is_array_api_obj(x) for x in arrays):
        return False  # array_namespace passes over None and numbers
    try:
        array_namespace(*arrays)
    except TypeError:
        return False
    return True


def check_arrays(q: Array, k: Array, v: Array) -> None:
    """One library, one supported dtype, the same number of axes."""
    if not of_one_library(q, k, v):
        kinds = ", ".join(f"{type(x).__module__}.{type(x).__qualname__}" for x in (q, k, v))
        raise TypeError(
            f"q, k and v must be arrays of one library that follows the array API standard. Got {kinds}. "
            "Convert them first, for instance with numpy.asarray."
        )
    if any(getattr(x, "requires_grad", False) for x in (q, k, v)):
        raise TypeError(
            "q, k and v must not require gradients: no framework can follow them from rank to rank. "
            "Got requires_grad=True. Pass x.detach() and use the gradients of ringcore.attention_vjp."
        )
    if any(isinstance(x, np.ma.MaskedArray) for x in (q, k, v)):
        raise TypeError("q, k and v must not be NumPy masked arrays: hide keys with mask=. Got one.")
    dtypes = [dtype_name(x.dtype) for x in (q, k, v)]
    if len(set(dtypes)) > 1:
        raise TypeError(
            f"q, k and v must share one dtype. Got {', '.join(dtypes)}. Nothing is promoted: cast them alike."
        )
    if not is_supported(q.dtype):
        raise TypeError(f"dtype must be float64, float32, float16 or bfloat16. Got {dtypes[0]}.")
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_byte_order(name, x)
    ndims = {x.ndim for x in (q, k, v)}
    if len(ndims) > 1 or min(ndims) < 2:
        raise ValueError(
            "q, k and v must have the same number of axes: (L, D), or (*B, H, L, D) with heads. "
            f"Got shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}."
        )


def check_byte_order(name: str, x: Array) -> None:
    """Native, as other ranks would read the bytes the wrong way round."""
    if not getattr(x.dtype, "isnative", True):
        raise TypeError(
            f"{name} must be in the machine's byte order. Got dtype {x.dtype.str}. "
            "Convert it with x.astype(x.dtype.newbyteorder('='))."
        )


def check_shapes(q: Array, k: Array, v: Array) -> None:
    """Canonical arrays (\\*B, heads, length, dim) that fit each other."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not tuple(q.shape[:-3]) == tuple(k.shape[:-3]) == tuple(v.shape[:-3]):
        raise ValueError(f"q, k and v must have equal batch axes; nothing is broadcast. Got {shapes}.")
    if k.shape[-3] != v.shape[-3] or k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same heads G and length L_k. Got {shapes}.")
    H, G = q.shape[-3], k.shape[-3]
    if G == 0 or H == 0 or H % G:
        raise ValueError(
            f"the query heads H must be a multiple of the key heads G, both >= 1. Got H={H}, G={G}: {shapes}."
        )
    if q.shape[-1] != k.shape[-1] or q.shape[-1] == 0:
        raise ValueError(f"q and k must have the same head dimension D >= 1. Got {shapes}.")


def check_layout(name: str, layout: Layout | None, length: int, ring: Ring, keys_follow: bool) -> None:
    """``keys_follow``: k_layout was not given, so that the keys are held to the layout of the queries."""
    if layout is None:
        return
    if not isinstance(layout, Layout):
        raise TypeError(f"{name} must be a ringcore.Layout. Got {type(layout).__name__}.")
    if layout.ranks != ring.size:
        raise ValueError(
            f"{name} must be for the ranks of the ring. Expected {ring.size}, got {layout!r}. "
            "Pass ring=, or make the layout with ranks=ring.size."
        )
    expected = layout.count(ring.rank)
    if expected != length:
        cure = "Shard with layout.shard(x, ring.rank)"
        if keys_follow:
            cure += "; where keys are another sequence than queries, pass k_layout="
        what = "q" if name == "layout" else "k and v"
        raise ValueError(
            f"{what} must hold this rank's part of {layout!r}. "
            f"Expected length {expected}, got {length}. {cure}."
        )


def check_mask(mask: Mask, q: Array) -> None:
    """A mask whose rows fit batch and heads of the canonical q."""
    if not isinstance(mask, Mask):
        called, wrapped = "Call it: ringcore.causal().", "Wrap a boolean array with ringcore.dense(array)."
        cure = called if callable(mask) else wrapped
        raise TypeError(f"mask must be a ringcore mask. Got {type(mask).__name__}. {cure}")
    if not of_one_library(q, *mask.arrays):
        kinds = ", ".join(type(x).__module__ for x in (q, *mask.arrays))
        raise TypeError(
            f"a dense mask must be an array of the inputs' library. Got {kinds}. Convert it before rc.dense."
        )
    lead = tuple(q.shape[:-2])
    for shape in (mask.lead, *(tuple(x.shape[:-2]) for x in mask.arrays)):
        try:
            fits = np.broadcast_shapes(shape, lead) == lead
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"the mask's rows must broadcast to batch and heads (*B, H) = {lead}. "
                f"Got {shape} from {mask!r}."
            )


def check_helpers(meter: Any, backend: Any) -> None:
    """None, or what the kernels can call."""
    if meter is not None and not isinstance(meter, Meter):
        raise TypeError(f"meter must be a ringcore.Meter. Got {type(meter).__name__}.")
    if backend is not None and (isinstance(backend, type) or not isinstance(backend, Backend)):
        got = backend.__name__ if isinstance(backend, type) else type(backend).__name__
        raise TypeError(
            f"backend must be an object with the methods of ringcore.protocols.Backend. Got {got}. "
            "Pass an instance, or leave it out."
        )


def finite(name: str, value: Any, dtype: str) -> float:
    """``value`` as a float that the dtype can hold."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, (bool, str)) or not math.isfinite(number):
        raise ValueError(f"{name} must be a finite number. Got {value!r}.")
    limits = np.finfo(dtype)
    if number and not float(limits.tiny) <= abs(number) <= float(limits.max):
        raise ValueError(
            f"{name} must be 0 or within the range of {dtype}, the accumulation dtype. Got {value!r}. "
            "Scale q instead."
        )
    return number
