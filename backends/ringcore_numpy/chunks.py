"""How many tokens of a feedforward layer are worked on at a time, from the size of this machine's caches."""

from __future__ import annotations

import os
from functools import cache

_BLOCKS = 4
"""Parts of the cache: backward of a gated layer has three blocks of hidden width; and the weights."""

_FEWEST, _MOST = 512, 2048
"""BLAS packs the weights for every chunk: with 256 tokens that costs a tenth. More only need memory."""

_LAST_LEVEL = 32 << 20  # bytes, where the system does not say


def chunk_of(features: int, itemsize: int) -> int:
    """Tokens whose block of ``features`` hidden numbers each stays in the cache that all cores share."""
    fit = last_level_bytes() // (_BLOCKS * max(features, 1) * itemsize)
    return min(max(fit, _FEWEST), _MOST)


@cache
def last_level_bytes() -> int:
    """Size of the third-level cache."""
    try:
        size = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (ValueError, OSError, AttributeError):  # not on macOS
        return _LAST_LEVEL
    return size if size > 0 else _LAST_LEVEL
