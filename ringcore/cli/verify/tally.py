"""Outcomes added up: by row of the report, by dtype, by library."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ringcore.cli.verify.outcome import Measure, Outcome


@dataclass
class Group:
    """Problems that have something in common.

    Attributes
    ----------
    section, row : str
    problems, failed : int
    worst : dict
        The measure that uses up the largest part of its bound, by quantity.
    faulty : set of str
        Quantities that break the contract somewhere.
    """

    section: str
    row: str
    problems: int = 0
    failed: int = 0
    worst: dict[str, Measure] = field(default_factory=dict)
    faulty: set[str] = field(default_factory=set)

    def add(self, outcome: Outcome) -> None:
        """Take in one more problem."""
        self.problems += 1
        self.failed += not outcome.passed
        self.faulty |= {fault.quantity for fault in outcome.faults}
        for measure in outcome.measures:
            known = self.worst.get(measure.quantity)
            if known is None or measure.share > known.share:
                self.worst[measure.quantity] = measure


class Tally:
    """All that has been found so far.

    Attributes
    ----------
    groups : dict
        By (section, row): the report's rows, and those that the sections 'dtype' and 'library' add.
    failures : list of Outcome
    problems, messages, bytes : int
    worst : (Measure, str) or None
        The measure of an error that uses up the largest part of its bound, and its case's name.
    stopped : bool
        Whether the ring broke.
    """

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str], Group] = {}
        self.failures: list[Outcome] = []
        self.problems = self.messages = self.bytes = 0
        self.worst: tuple[Measure, str] | None = None
        self.stopped = False

    def add(self, outcome: Outcome) -> None:
        """Take in one more problem."""
        case = outcome.case
        self.problems += 1
        self.messages += outcome.messages
        self.bytes += outcome.bytes
        self.stopped |= outcome.stops
        if not outcome.passed:
            self.failures.append(outcome)
        for key in ((case.section, case.row), ("dtype", case.dtype), ("library", case.library)):
            self.groups.setdefault(key, Group(*key)).add(outcome)
        for measure in outcome.measures:
            if not measure.quantity.startswith("rms ") and (
                self.worst is None or measure.share > self.worst[0].share
            ):
                self.worst = measure, case.name

    @property
    def passed(self) -> bool:
        """Whether the contract holds for all of them."""
        return not self.failures

    def by_fault(self) -> Counter[str]:
        """How many problems fail in each quantity."""
        return Counter(
            quantity for outcome in self.failures for quantity in {f.quantity for f in outcome.faults}
        )
