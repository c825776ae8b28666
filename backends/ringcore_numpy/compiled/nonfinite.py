"""NaN and inf: 0 x NaN is NaN inside a product, and so would reach rows that do not see it.

The kernels get operands without them. What they would have reached is marked before, in the statistics of
rows, or after, in the result, from the intervals alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def nonfinite(x: Array) -> Array | None:
    """Where x (N, .., L, C) holds NaN or inf; None if nowhere. Looks at one head at a time: less memory."""
    if all(bool(np.isfinite(part).all()) for part in x):
        return None
    return ~np.isfinite(x)


def without(x: Array, bad: Array | None) -> Array:
    """X with 0 in place of what is not finite."""
    return x if bad is None else np.where(bad, x.dtype.type(0), x)


def rows_reached(lo: Array, hi: Array, bad: Array) -> Array:
    """Which queries see a key that is bad: bad (N, L_k, C), intervals (n, L_q); the result is (N, L_q, C)."""
    before = np.zeros((bad.shape[0], bad.shape[1] + 1, bad.shape[2]), np.int32)
    np.cumsum(bad, axis=1, out=before[:, 1:])
    return np.any([before[:, b] > before[:, a] for a, b in zip(lo, hi, strict=True)], axis=0)


def keys_reached(lo: Array, hi: Array, bad: Array, L_k: int) -> Array:
    """Which keys a bad query sees: bad (N, L_q, C), intervals (n, L_q); the result is (N, L_k, C)."""
    change = np.zeros((bad.shape[0], L_k + 1, bad.shape[2]), np.int32)
    rows = np.flatnonzero(bad.any(axis=(0, 2)))
    for a, b in zip(lo, hi, strict=True):
        used = rows[a[rows] < b[rows]]
        for row in used:
            change[:, a[row]] += bad[:, row]
            change[:, b[row]] -= bad[:, row]
    return np.cumsum(change, axis=1)[:, :-1] > 0
