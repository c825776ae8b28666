"""Adding many numbers to sums without losing a bit with each (`ringcore.compensated`), row by row."""

from __future__ import annotations

from typing import Any

from ringcore_numpy.compiled.options import part_of_kernels

Array = Any


@part_of_kernels
def add(total: Array, lost: Array, term: Array, scale: Any) -> None:
    """Add ``scale * term`` to a row of totals; ``term`` becomes 0, for the next sum."""
    for i in range(total.shape[0]):
        wanted = term[i] * scale - lost[i]
        new = total[i] + wanted
        lost[i] = (new - total[i]) - wanted
        total[i] = new
        term[i] = 0


@part_of_kernels
def rescale(row: Array, factor: Any) -> None:
    """Multiply a row."""
    for i in range(row.shape[0]):
        row[i] *= factor
