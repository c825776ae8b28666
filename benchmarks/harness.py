"""A, B, A, C: contenders in turn, the matrix products between them; figures from neighbours alone.

A machine that others use too changes its speed from second to second, and by a factor of two. So no time
is compared with one of another moment: a figure is the median of ratios of neighbouring samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from rivals.rival import Unavailable

PAUSE = 0.05
"""Seconds between samples: BLAS and OpenMP threads spin for some time before they sleep."""

GEMM = "gemm"


@dataclass
class Samples:
    """Seconds in the order in which they were measured."""

    names: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    """Who failed on the way, and why."""

    def add(self, name: str, seconds: float) -> None:
        self.names.append(name)
        self.seconds.append(seconds)

    def of(self, name: str) -> list[float]:
        return [s for n, s in zip(self.names, self.seconds, strict=True) if n == name]

    def beside(self, name: str, other: str) -> list[float]:
        """For each sample of ``name``: its seconds over those of ``other`` around it.

        Around: the mean of the last before and the first after.
        """
        ratios = []
        for i, found in enumerate(self.names):
            if found == name:
                before = next((j for j in range(i - 1, -1, -1) if self.names[j] == other), None)
                after = next((j for j in range(i + 1, len(self.names)) if self.names[j] == other), None)
                around = [self.seconds[j] for j in (before, after) if j is not None]
                if around:
                    ratios.append(self.seconds[i] * len(around) / sum(around))
        return ratios

    def ratio(self, name: str, other: str) -> float:
        """Median of `beside`."""
        return median(self.beside(name, other))


def course(first: str, others: list[str]) -> Iterator[str]:
    """One round: ``first`` before every two of the others, the matrix products before each.

    What comes next, another round or the end, begins with both again: so they stand beside all.
    """
    for i in range(0, max(len(others), 1), 2):
        for name in (first, *others[i : i + 2]):
            yield GEMM
            yield name


def seconds_of(work: Callable[[], object]) -> float:
    time.sleep(PAUSE)
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measured(
    works: dict[str, Callable[[], object]],
    gemm: Callable[[], float] | None,
    rounds: int,
    allowance: float,
    fewest: Mapping[str, int],
    tell: Callable[[str], None] = lambda name: None,
) -> Samples:
    """Up to ``rounds`` rounds; the first of ``works`` is the one to be compared with.

    Another one takes part in its ``fewest`` rounds, and then as long as it is likely to stay within
    ``allowance`` seconds in all; the rounds end when all others have left. All have been called once before.
    Without ``gemm`` no products stand between.
    """
    samples = Samples()
    first, *others = works

    def stays(name: str) -> bool:
        taken = samples.of(name)
        if name in samples.lost:
            return False
        return len(taken) < fewest[name] or sum(taken) + taken[-1] <= allowance

    def take(name: str) -> None:
        tell(name)
        if name == GEMM and gemm is not None:
            time.sleep(PAUSE)
            samples.add(name, gemm())
        elif name != GEMM:
            try:
                samples.add(name, seconds_of(works[name]))
            except Unavailable as why:
                samples.lost[name] = str(why)

    if gemm is not None:
        gemm()
    for _ in range(rounds):
        staying = [name for name in others if stays(name)]
        if others and not staying:
            break
        for name in course(first, staying):
            take(name)
    for name in (GEMM, first, GEMM):
        take(name)
    return samples
