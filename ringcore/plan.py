"""What follows from layouts and mask alone: who sees what. A ring keeps that of its last short calls.

There it would take as long as the kernels to find it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from ringcore.intervals import Intervals
from ringcore.layout import Layout
from ringcore.mask import Mask
from ringcore.step import lower, needed

# What is kept, and so the memory that it takes: some MiB at most.
_PLANS = 8
_ENTRIES = 128  # of a plan
_POSITIONS = 8192  # of both sequences together
_RANKS = 64
_BYTES = 1 << 18  # of the intervals of a plan, against all ranks

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """One rank's queries, and what they see. Its arrays are not written to.

    Attributes
    ----------
    positions : array of int, shape (L_q,)
        Global positions of the queries.
    seen : Intervals
        What they see, in global key positions.
    needs : array of bool, shape (P,)
        Whose keys they see.
    memory : dict or None
        What else follows; None where nothing is kept.
    """

    positions: np.ndarray
    seen: Intervals
    needs: np.ndarray
    memory: dict[Hashable, Any] | None

    def recall(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns, which depends on this plan and ``key`` only."""
        if self.memory is None:
            return make()
        if key not in self.memory:
            _make_room(self.memory, _ENTRIES)
            self.memory[key] = make()
        return self.memory[key]  # type: ignore[no-any-return]


class Plans:
    """The last plans of a rank."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Plan] = {}

    def of(self, q_layout: Layout, k_layout: Layout, mask: Mask, rank: int) -> Plan:
        """The plan of a rank; always the same rank."""
        short = q_layout.length + k_layout.length <= _POSITIONS and q_layout.ranks <= _RANKS
        key = (q_layout, k_layout, identity(mask)) if short else None
        if key is None or key[2] is None:
            return _plan(q_layout, k_layout, mask, rank, None)
        if key not in self._kept:
            plan = _plan(q_layout, k_layout, mask, rank, {})
            if 2 * plan.seen.lo.nbytes * (q_layout.ranks + 1) > _BYTES:
                return plan
            _make_room(self._kept, _PLANS)
            self._kept[key] = plan
        return self._kept[key]


def identity(value: object) -> Hashable:
    """The same for masks that are the same, and for no others; None where that cannot be told.

    Types count, too: a class that is defined again may lower otherwise.
    """
    if isinstance(value, Mask):
        values = [] if value.arrays else [identity(getattr(value, field.name)) for field in fields(value)]  # type: ignore[arg-type]
        return None if value.arrays or None in values else (type(value), *values)
    if isinstance(value, tuple):
        values = [identity(x) for x in value]
        return None if None in values else (tuple, *values)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.dtype.str, value.shape, value.tobytes()
    return (type(value), value) if value is None or type(value) in (bool, int, float, str) else None


def _plan(
    q_layout: Layout, k_layout: Layout, mask: Mask, rank: int, memory: dict[Hashable, Any] | None
) -> Plan:
    positions = q_layout.positions(rank)
    seen = lower(mask, positions, k_layout.length)
    return Plan(positions, seen, needed(seen, k_layout), memory)


def _make_room(kept: dict[Hashable, Any], most: int) -> None:
    """Forget the oldest."""
    if len(kept) >= most:
        del kept[next(iter(kept))]
