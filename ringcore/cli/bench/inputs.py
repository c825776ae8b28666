"""The arrays: a number follows from its array's name and its position, so that no rank needs the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcore.cli.bench.rows import Row
from ringcore.testing import from_numpy, round_to

BLOCK = 4096
"""Positions that are drawn together."""
NAMES = ("q", "k", "v", "dout")


def drawn(row: Row, name: str, positions: NDArray[np.int64]) -> NDArray[np.float32]:
    """Standard normal numbers, (H or G, len(positions), D); positions in increasing order."""
    heads = row.kv_heads if name in ("k", "v") else row.heads
    out = np.empty((heads, len(positions), row.dim), np.float32)
    edges = np.flatnonzero(np.diff(positions // BLOCK)) + 1
    for part in np.split(np.arange(len(positions)), edges):
        if part.size:
            block = int(positions[part[0]] // BLOCK)
            rng = np.random.default_rng([NAMES.index(name), block])
            size = min(BLOCK, row.length - block * BLOCK)
            whole = rng.standard_normal((size, heads, row.dim), dtype=np.float32)
            out[:, part] = np.swapaxes(whole[positions[part] - block * BLOCK], 0, 1)
    return out


def exact(row: Row, name: str, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """The same as the row's dtype has it, in float64."""
    return round_to(drawn(row, name, positions), row.dtype)


def given(row: Row, name: str, positions: NDArray[np.int64]) -> Any:
    """The same as an array of the row's library and dtype."""
    return from_numpy(row.library.xp, drawn(row, name, positions), row.dtype)
