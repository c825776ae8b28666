"""Whole arrays from rank to rank: the step that all collectives are made of."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj

from ringcore.dtypes import dtype_name, dtype_of
from ringcore.protocols import Array, ArraySpec, Recv, Send
from ringcore.registry import backend_of

if TYPE_CHECKING:
    from ringcore.ring import Ring

F = TypeVar("F", bound=Callable[..., Any])


def exclusive(function: F) -> F:
    """One thread at a time on a ring, and no warning or exception of NumPy's on some ranks only."""

    @wraps(function)
    def wrapped(x: Any, ring: Ring, *args: Any, **kwargs: Any) -> Any:
        with ring.exclusive(function.__name__), np.errstate(all="ignore"):
            return function(x, ring, *args, **kwargs)

    return cast(F, wrapped)


TAG = 0
"""Collectives complete before they return, so one tag serves all."""


def swap(
    ring: Ring, sends: Mapping[int, Array], recvs: Mapping[int, ArraySpec], like: Array | Mapping[int, Array]
) -> dict[int, Array]:
    """One array to and from each named rank, of sizes that both sides know.

    Parameters
    ----------
    ring : Ring
    sends : dict of rank to array
    recvs : dict of rank to ArraySpec
    like : array, or dict of rank to array
        Of the library, device and dtype to receive in; a dict has one for each source.

    Returns
    -------
    dict of rank to array
        What the ranks in ``recvs`` have sent. An array without elements is not sent, but made here.
    """
    likes = like if isinstance(like, dict) else dict.fromkeys(recvs, like)
    where = ring.transport.where
    wires_out = {to: backend_of(x).pack([x], where) for to, x in sends.items() if math.prod(x.shape)}
    wires_in = {src: backend_of(likes[src]).blank([spec], where) for src, spec in recvs.items()}
    for wire in wires_out.values():
        wire.ready()
    ring.transport.exchange(
        [Send(wire.buffer, to, TAG) for to, wire in wires_out.items()],
        [Recv(w.buffer, src, TAG) for src, w in wires_in.items() if math.prod(recvs[src].shape)],
    ).wait(ring.timeout)
    del wires_out  # before arrays are made of what has come
    return {src: backend_of(likes[src]).unpack(wire, likes[src])[0] for src, wire in wires_in.items()}


def select(x: Array, index: np.ndarray, axis: int) -> Array:
    """Elements of ``x`` along an axis: a slice where the indices are evenly spaced, else a copy."""
    xp, n = array_namespace(x), len(index)
    step = int(index[1] - index[0]) if n > 1 else 1
    if step > 0 and (n < 2 or bool(np.all(np.diff(index) == step))):
        start = int(index[0]) if n else 0
        along = slice(start, start + (n - 1) * step + 1 if n else 0, step)
        return x[(slice(None),) * axis + (along,) + (slice(None),) * (x.ndim - axis - 1)]
    return xp.take(x, xp.asarray(index, device=device(x)), axis=axis)


def spec_of(x: Array, axis: int, length: int) -> ArraySpec:
    """What arrives from a rank that has ``length`` elements on an axis, and is like ``x`` otherwise."""
    return ArraySpec((*x.shape[:axis], length, *x.shape[axis + 1 :]), x.dtype)


def copy_of(x: Array) -> Array:
    """A copy that shares no memory."""
    return array_namespace(x).asarray(x, copy=True)


def empty_of(library: str, dtype: str, where: Any = None) -> Array:
    """An empty array of a library, found by the name of its namespace."""
    xp = importlib.import_module(library)
    return xp.zeros((0,), dtype=dtype_of(xp, dtype), device=where)


def check_array(name: str, x: Array) -> None:
    """Refuse what cannot travel: not an array, or a dtype that its name does not tell."""
    if not is_array_api_obj(x):
        raise TypeError(f"{name} must be an array. Got {type(x).__name__}. Convert it with numpy.asarray.")
    library = array_namespace(x)
    if x.dtype != empty_of(library.__name__, dtype_name(x.dtype)).dtype:
        raise TypeError(
            f"{name} must have a plain dtype of its library. Got {x.dtype!r}. "
            "Convert it, for instance to the machine's byte order."
        )
