"""What a test was called with, as a short text that ranks can compare: equal for equal content."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

from ringcore.ring import Ring
from ringcore.testing.arrays import to_numpy


def digest(*things: Any) -> str:
    """A short text that is equal on all ranks for equal values: of arrays by content, of rings by size.

    Functions and classes go by name. Whatever shows its address instead of its content goes by what pickle
    would keep of it, so that other processes come to the same digest.

    Raises
    ------
    TypeError
        If an object has no content that processes could compare (a lock, an open file, a running
        generator), or holds itself.

    Examples
    --------
    >>> import numpy as np
    >>> digest([np.zeros(2), {"a": 1}]) == digest([np.zeros(2), {"a": 1}])
    True
    >>> digest(np.zeros(2)) == digest(np.zeros(3))
    False
    """
    try:
        text = _canonical(things)
    except RecursionError:
        raise TypeError(_NO_CONTENT.format("something that holds itself")) from None
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


_NO_CONTENT = (
    "what a test in lockstep is called with must have a content that ranks can compare: values, or objects "
    "that pickle takes. Got {}. Make it in the body, or let the body be a closure over it."
)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PRIMITIVE = (str, bytes, bytearray, int, float, complex, type(None))


def _canonical(x: Any) -> str:
    kind = type(x).__qualname__
    if type(x) in _PRIMITIVE:
        return f"{kind}:{x!r}"
    if isinstance(x, Ring):
        return f"Ring of {x.size}"
    if isinstance(x, types.ModuleType):
        return x.__name__
    if isinstance(x, type | types.FunctionType):
        return f"{x.__module__}.{x.__qualname__}"
    if dataclasses.is_dataclass(x):
        parts = [f"{f.name}={_canonical(getattr(x, f.name))}" for f in dataclasses.fields(x)]
        return f"{kind}({','.join(parts)})"
    if isinstance(x, Mapping):
        return f"{kind}{{{','.join(f'{_canonical(a)}:{_canonical(b)}' for a, b in x.items())}}}"
    if isinstance(x, set | frozenset):
        return f"{kind}{{{','.join(sorted(map(_canonical, x)))}}}"
    if isinstance(x, tuple | list):
        return f"{kind}[{','.join(map(_canonical, x))}]"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        values = to_numpy(x)
        held = _canonical(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
        return f"{kind}{tuple(x.shape)}{x.dtype}{hashlib.blake2b(held, digest_size=8).hexdigest()}"
    shown = repr(x)
    return f"{kind}{_reduced(x)}" if _ADDRESS.search(shown) else f"{kind}:{shown}"


def _reduced(x: Any) -> str:
    """The parts that pickle would make an object from, one of whose reprs shows an address."""
    try:
        parts = x.__reduce_ex__(4)
    except Exception as error:
        raise TypeError(_NO_CONTENT.format(f"{x!r} ({error})")) from error
    if isinstance(parts, str):  # the name of something global
        return f"{getattr(x, '__module__', None)}.{parts}"
    return _canonical([list(part) if isinstance(part, Iterator) else part for part in parts])
