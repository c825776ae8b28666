"""Sets of half-open intervals, one set per query: the algebra under every mask.

A set is stored as two integer arrays ``lo`` and ``hi`` of shape (n, \\*lead, L_q): n slots per query,
sorted and disjoint, with unused slots last at ``lo = hi = length``. ``lead`` is () or broadcasts
against the batch and head axes. Nothing here branches on the numbers, so every operation can be
traced (``jax.jit``); `compact`, which drops unused slots, is for NumPy only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ringcore.protocols import Array


class Intervals(NamedTuple):
    """Half-open intervals [lo, hi) of key positions, shape (n, \\*lead, L_q), integers."""

    lo: Array
    hi: Array


def single(xp: Array, lo: Array, hi: Array, length: int) -> Intervals:
    """One interval per query, clipped to [0, length); ``lo >= hi`` is the empty set."""
    lo, hi = xp.maximum(lo, xp.zeros_like(lo)), xp.minimum(hi, xp.full_like(hi, length))
    return _normal(xp, lo[None, ...], hi[None, ...], length)


def complement(xp: Array, a: Intervals, length: int) -> Intervals:
    """The positions of [0, length) that are not in ``a``; n + 1 slots."""
    start = xp.zeros_like(a.lo[:1, ...])
    end = xp.full_like(start, length)
    return _normal(xp, xp.concat([start, a.hi], axis=0), xp.concat([a.lo, end], axis=0), length)


def union(xp: Array, a: Intervals, b: Intervals, length: int) -> Intervals:
    """The positions in ``a`` or ``b``; n_a + n_b slots.

    Sorting all starts and all ends apart keeps how many intervals cover each position; cutting each
    interval at the end of the one before it then makes them disjoint.
    """
    a, b = _broadcast(xp, a, b)
    lo = xp.sort(xp.concat([a.lo, b.lo], axis=0), axis=0)
    hi = xp.sort(xp.concat([a.hi, b.hi], axis=0), axis=0)
    lo = xp.concat([lo[:1, ...], xp.maximum(lo[1:, ...], hi[:-1, ...])], axis=0)
    return _normal(xp, lo, hi, length)


def intersection(xp: Array, a: Intervals, b: Intervals, length: int) -> Intervals:
    """The positions in both; of the pairwise intersections at most n_a + n_b - 1 are not empty."""
    a, b = _broadcast(xp, a, b)
    n_a, n_b = a.lo.shape[0], b.lo.shape[0]
    lo = xp.maximum(a.lo[:, None, ...], b.lo[None, ...])
    hi = xp.minimum(a.hi[:, None, ...], b.hi[None, ...])
    shape = (n_a * n_b, *lo.shape[2:])
    pairs = _normal(xp, xp.reshape(lo, shape), xp.reshape(hi, shape), length)
    keep = n_a + n_b - 1
    return Intervals(pairs.lo[:keep, ...], pairs.hi[:keep, ...])


def compact(a: Intervals) -> Intervals:
    """Drop the slots that no query uses (NumPy arrays only); at least one stays."""
    used = np.any(a.lo < a.hi, axis=tuple(range(1, a.lo.ndim)))
    n = max(1, int(np.sum(used)))
    return Intervals(a.lo[:n], a.hi[:n])


def hull(a: Intervals) -> Intervals:
    """The union over all queries, as sorted disjoint intervals of shape (n,) (NumPy arrays only)."""
    lo, hi = a.lo.ravel(), a.hi.ravel()
    seen = lo < hi
    lo, hi = lo[seen], hi[seen]
    if lo.size == 0:
        return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
    order = np.argsort(lo, kind="stable")
    lo, hi = lo[order], np.maximum.accumulate(hi[order])
    first = np.concatenate([[True], lo[1:] > hi[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(lo[first], hi[last])


def _normal(xp: Array, lo: Array, hi: Array, length: int) -> Intervals:
    """Move empty slots behind the others. Disjoint intervals stay paired when sorted apart."""
    empty = hi <= lo
    end = xp.full_like(lo, length)
    return Intervals(xp.sort(xp.where(empty, end, lo), axis=0), xp.sort(xp.where(empty, end, hi), axis=0))


def _broadcast(xp: Array, a: Intervals, b: Intervals) -> tuple[Intervals, Intervals]:
    """Give both sets the same lead axes; each keeps its number of slots."""
    ndim = max(a.lo.ndim, b.lo.ndim)

    def raised(x: Array) -> Array:
        return xp.reshape(x, (x.shape[0],) + (1,) * (ndim - x.ndim) + tuple(x.shape[1:]))

    sets = [Intervals(raised(s.lo), raised(s.hi)) for s in (a, b)]
    tail = np.broadcast_shapes(*(s.lo.shape[1:] for s in sets))
    x, y = (Intervals(*(xp.broadcast_to(e, (e.shape[0], *tail)) for e in s)) for s in sets)
    return x, y
