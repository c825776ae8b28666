"""An attention problem: solved by all ranks, gathered and compared on the first one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ringcore.cli.verify.outcome import Fault, Measure
from ringcore.dtypes import accumulation_name, unit_roundoff
from ringcore.protocols import Array
from ringcore.ring import Ring
from ringcore.testing import (
    Problem,
    Results,
    assemble,
    assert_no_growth,
    check_attention,
    nrms,
    round_to,
    solve_on,
)

_HUGE = 1e30  # a factor that every finite error keeps to
_RMS = 1.5


@dataclass(frozen=True)
class AttentionCheck:
    """Forward and backward of one problem against the float64 oracle, each element by the contract's bound.

    Attributes
    ----------
    problem : Problem
        A description: copies of it make the arrays, so that they go with the copies.
    growth : bool
        Whether the root mean square of the error is compared with dense attention's, too.
    """

    problem: Problem
    growth: bool = False

    def solve(self, ring: Ring, backend: Any) -> dict[str, Array]:
        """This rank's shards of out, lse, dq, dk, dv. Collective."""
        return solve_on(ring, replace(self.problem), backend=backend)._asdict()

    def gather(self, ring: Ring, mine: Mapping[str, Array]) -> dict[str, Array]:
        """The whole arrays on rank 0, None elsewhere. Collective."""
        return {name: ring.gather(x, self._layout(name), axis=self._axis(name)) for name, x in mine.items()}

    def is_shared(self, name: str) -> bool:
        """No: each rank has its shard."""
        return False

    def must_send(self) -> bool:
        """Whether some rank's query sees another rank's key, so that there is something to send."""
        problem = replace(self.problem)
        seen = np.any(problem.visible, axis=tuple(range(problem.visible.ndim - 2)))
        for rank in range(problem.ranks):
            elsewhere = np.delete(seen, problem.k_layout.positions(rank), axis=1)
            if np.any(elsewhere[problem.q_layout.positions(rank)]):
                return True
        return False

    def judge(self, whole: Mapping[str, Array]) -> tuple[list[Measure], list[Fault]]:
        """Compare with the oracle; on rank 0."""
        problem = replace(self.problem)
        measures, faults = [], []
        for name, x in whole.items():
            layout, axis = self._layout(name), self._axis(name)
            parts = [Results(**{name: layout.shard(x, rank, axis=axis)}) for rank in range(problem.ranks)]

            def compared(factor: float, name: str = name, parts: list[Results] = parts) -> float:
                return check_attention(problem, parts, factor=factor)[name]

            worst, message = measured(compared, problem.factor)
            measures.append(Measure(name, worst, problem.factor))
            if message:
                faults.append(Fault(name, message))
            elif self.growth:
                ratio, message = _growth(problem, name, parts)
                measures.append(Measure(f"rms {name}", ratio, _RMS))
                faults += [Fault(f"rms {name}", message)] if message else []
        return measures, faults

    def __str__(self) -> str:
        return repr(self.problem)

    def _layout(self, name: str) -> Any:
        return self.problem.k_layout if name in ("dk", "dv") else self.problem.q_layout

    def _axis(self, name: str) -> int:
        return -1 if name == "lse" else self.problem.seq_axis


def measured(compared: Callable[[float], float], factor: float) -> tuple[float, str]:
    """The largest error in units of u cond, and what is wrong with it, if anything.

    Parameters
    ----------
    compared : callable
        Gets a factor of the bound; returns the largest error, or raises AssertionError where it is beyond.
    factor : float
        What the contract allows.
    """
    try:
        return compared(factor), ""
    except AssertionError as error:
        message = str(error)
    try:
        worst = compared(_HUGE)  # how much
    except AssertionError:
        return math.inf, message
    return (worst if worst > factor else math.inf), message


def _growth(problem: Problem, name: str, parts: list[Results]) -> tuple[float, str]:
    """The ring's root mean square error over that of dense attention in the same arithmetic."""
    got, want = (np.asarray(getattr(x, name)) for x in (assemble(problem, parts), problem.reference))
    dtype = accumulation_name(problem.dtype) if name == "lse" else problem.dtype
    dense = round_to(getattr(problem.dense, name), dtype)
    u, cond = unit_roundoff(accumulation_name(problem.dtype)), getattr(problem.conditions, name)
    ring, plain = nrms(np.abs(got - want), u, cond), nrms(np.abs(dense - want), u, cond)
    ratio = max(ring - 0.02, 0.0) / plain if plain > 0 else (0.0 if ring <= 0.02 else math.inf)
    try:
        assert_no_growth(ring, plain, name=name)
    except AssertionError as error:
        return ratio, str(error)
    return ratio, ""
