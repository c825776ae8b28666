"""Pytest under mpirun, from the end of collection on: what happens on one rank, happens on all."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest

from ringcore.errors import RingError
from ringcore.ring import Ring
from ringcore.testing.meeting import VERDICT, check_places, meet
from ringcore.testing.shared_reports import Crash, Note, RanksFailure, note_of, share

TOGETHER = "ringcore-together"
"""Name of the plug-in `Together`."""

_DONE = "done"
_MOST_MEETINGS = 8


class Together:
    """One verdict on each test, and one exit code.

    Registered last, so that its word on a report comes after that of all other plug-ins.

    Parameters
    ----------
    session : pytest.Session
    ring : Ring
        Of all processes: the fixture.
    office : Ring
        Of all processes, for verdicts; the tests know nothing of it.
    uses_ranks : callable
    """

    def __init__(
        self, session: pytest.Session, ring: Ring, office: Ring, uses_ranks: Callable[[Any], bool]
    ) -> None:
        self.ring = ring
        self._session, self._office, self._uses_ranks = session, office, uses_ranks
        self._broken: str | None = None  # since when, and why, the tests' ring cannot be used
        self._parted = False  # whether verdicts, too, no longer get through

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """After a failure of the ring its other tests fail at once."""
        if self._broken is not None and self._uses_ranks(item):
            pytest.fail(f"The ring cannot be used any more. It broke in {self._broken}", pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Make one report of all ranks' reports."""
        report = yield
        if self.ring.size > 1 and not self._parted:
            self._share(item, call, report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """End with the same exit code on all ranks, and keep nobody waiting for this one."""
        if self.ring.size > 1 and not self._parted:
            code = int(exitstatus)
            place = f"the end of its session (exit code {code})"
            self._leave_calls(self.ring, place)
            try:
                come = meet(self._office, place, code)
                session.exitstatus = max(note for _, note in come if isinstance(note, int))
            except RingError:
                session.exitstatus = session.exitstatus or pytest.ExitCode.INTERRUPTED
        return (yield)

    def _share(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        place = f"{VERDICT} {item.nodeid} ({call.when})"
        used = (getattr(item, "funcargs", None) or {}).get("ring")
        ring = used if isinstance(used, Ring) and used.size == self.ring.size else self.ring
        broken, error = self._leave_calls(ring, place), call.excinfo.value if call.excinfo else None
        if broken and isinstance(error, RingError):
            broken = f"{type(error).__name__}: {error}"  # where it was noticed first
        mine = note_of(report, error)
        try:
            come = meet(self._office, place, [broken, dataclasses.asdict(mine)])
            check_places(come)
        except RingError as lost:
            self._part(report, mine, f"{type(lost).__name__}: {lost}")
            return
        if self._broken is None:
            first = next((why for _, (why, _) in come if why), None)
            self._broken = first and f"{item.nodeid}: {first}"
        share(report, [Note(**note) for _, (_, note) in come])

    def _leave_calls(self, ring: Ring, place: str) -> str | None:
        """Come together on a ring of the tests: who is still in a call there leaves it.

        Returns why the fixture's ring is broken, if it is and that is new.
        """
        if self._broken is not None and ring is self.ring:
            return None
        try:
            for _ in range(_MOST_MEETINGS):
                come = meet(ring, place, _DONE)
                if all(note == _DONE for _, note in come):  # else some are still at an example
                    break
        except RingError as error:
            return f"{type(error).__name__}: {error}" if ring is self.ring else None
        return None

    def _part(self, report: pytest.TestReport, mine: Note, why: str) -> None:
        """The other ranks cannot be reached: end the session on this one."""
        self._parted = True
        text = f"The ranks have lost each other, so that this session ends. {why}"
        report.outcome = "failed"
        failure: Any = RanksFailure(Crash("", 0, text), f"{mine.text}\n\n{text}".strip())
        report.longrepr = failure
        self._session.shouldstop = f"rank {self.ring.rank} of {self.ring.size} has lost the others"
        if self.ring.rank > 0:
            shout(self.ring.rank, f"{report.nodeid} ({report.when})\n{report.longrepr}")


def shout(rank: int, text: str) -> None:
    """Say it here: rank 0 may not be there to say it."""
    print(f"\n[rank {rank}] {text}", file=sys.__stderr__, flush=True)
