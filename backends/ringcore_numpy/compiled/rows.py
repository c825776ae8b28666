"""Passes over tiles of scores: from scores to weights, row by row, while a row lies in the first cache."""

from __future__ import annotations

from typing import Any

from ringcore_numpy.compiled.exponential import exp
from ringcore_numpy.compiled.instructions import add_in_any_order, from_ordered, ordered
from ringcore_numpy.compiled.options import part_of_kernels

Array = Any


@part_of_kernels
def largest(row: Array, start: Any) -> Any:
    """The largest of a row's numbers and ``start``; NaN is larger than all, or smaller."""
    best = ordered(start)
    for j in range(row.shape[0]):
        best = max(best, ordered(row[j]))
    return from_ordered(best)


@part_of_kernels
def weigh(row: Array, reference: Any) -> Any:
    """Write exp(row - reference) over a row; returns the sum."""
    total = row.dtype.type(0)
    for j in range(row.shape[0]):
        value = exp(row[j] - reference)
        row[j] = value
        total = add_in_any_order(total, value)
    return total


@part_of_kernels
def differentiate(s: Array, ds: Array, m: Any, inverse: Any, delta: Any) -> None:
    """Scores of a row to weights p, and dp = dout v^T to ds = p (dp - delta)."""
    for j in range(s.shape[0]):
        p = exp(s[j] - m) * inverse
        s[j] = p
        ds[j] = p * (ds[j] - delta)
