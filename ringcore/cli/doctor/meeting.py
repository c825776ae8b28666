"""Starts MPI, alone or with all processes of the run, and reports what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ringcore as rc
from ringcore.cli.doctor import child, mpi, mpi_facts
from ringcore.cli.doctor.finding import Finding, failed, spoken
from ringcore.cli.doctor.mpi_facts import MpiFacts
from ringcore.cli.doctor.mpirun import in_path
from ringcore.cli.doctor.software import installed
from ringcore.cli.doctor.vendors import family_of, strangers, vendor
from ringcore.cli.world import world
from ringcore.launcher import Launch

SECONDS = 60.0
"""To wait for the other ranks, once MPI has started."""

Show = Callable[[Finding], None]


@dataclass(frozen=True)
class Meeting:
    """What came of it.

    Attributes
    ----------
    ring : Ring or None
        All processes of this run; None if they cannot meet.
    facts : MpiFacts or None
        What MPI says; None if it has not started.
    """

    ring: rc.Ring | None = None
    facts: MpiFacts | None = None


def meet(launch: Launch | None, show: Show) -> Meeting:
    """Report on MPI line by line, so that an MPI which ends the process has not taken the lines before.

    Collective if a launcher has started this process, without hanging where that started others that
    cannot be reached.
    """
    show(mpi.launcher(launch))
    version = installed("mpi4py", ("mpi4py",))
    if version is None:
        show(mpi.missing(launch))
        _show_all(show, in_path(None, None) if launch is None else ())
        return Meeting(rc.Ring() if launch is None or launch.size == 1 else None)
    show(Finding(mpi.SECTION, "mpi4py", version))
    try:
        if launch is None or launch.size == 1:
            return _alone(launch, show)
        return _together(launch, show)
    except Exception as error:
        show(failed(mpi.SECTION, "start", error, "problem"))
        return Meeting()


def _alone(launch: Launch | None, show: Show) -> Meeting:
    """In a child process, as nobody must be met: a library that crashes would take the report with it."""
    facts = None
    try:
        facts = child.ask()
    except child.Unloadable as error:
        show(mpi.unloadable(str(error).partition("\n")[0]))
    except child.Unanswered as error:
        show(mpi.unstartable("MPI", str(error)))
    else:
        _show_all(show, mpi.library(facts.library, facts.path))
        _show_all(show, mpi.started(facts))
        _show_all(show, mpi.cuda(facts))
    if launch is None:
        _show_all(show, in_path(facts.library, facts.path) if facts else in_path(None, None))
    return Meeting(rc.Ring(), facts)


def _together(launch: Launch, show: Show) -> Meeting:
    """In this process, as every command does it; in a child if the launcher seems to be another MPI's."""
    try:
        module = mpi_facts.load()
    except (ImportError, RuntimeError) as error:
        show(mpi.unloadable(spoken(error)))
        return Meeting()
    library, path = mpi_facts.library_version(module), mpi_facts.libmpi()
    _show_all(show, mpi.library(library, path))
    if not module.Is_initialized() and strangers(family_of(launch), vendor(library)[1]):
        return _strangers(launch, library, path, show)
    mpi_facts.start(module)
    facts = mpi_facts.read(module)
    if facts.size == 1 < launch.size and not _spawned(module):
        show(mpi.strangers_met(launch, library, path, f"Each of the {launch.size} is alone."))
        return Meeting(None, facts)
    _show_all(show, mpi.started(facts))
    _show_all(show, mpi.cuda(facts))
    try:
        return Meeting(world(SECONDS), facts)
    except Exception as error:
        show(Finding(mpi.SECTION, "ring", f"the ranks do not meet: {error}", "problem"))
        return Meeting(None, facts)


def _strangers(launch: Launch, library: str, path: str | None, show: Show) -> Meeting:
    """Try it in a child. Some MPIs serve launchers of the other family, some live alone, others crash."""
    try:
        facts = child.ask()
    except child.Unanswered as error:
        show(mpi.strangers_met(launch, library, path, f"It {error}."))
        return Meeting()
    if facts.size == 1 < launch.size:
        show(mpi.strangers_met(launch, library, path, f"Each of the {launch.size} is alone."))
        return Meeting(None, facts)
    value = "the launcher is another MPI's, but the library knows it. The rest is about the first rank only"
    show(Finding(mpi.SECTION, "mismatch", value, "note"))
    _show_all(show, mpi.started(facts))
    _show_all(show, mpi.cuda(facts))
    return Meeting(None, facts)


def _spawned(module: Any) -> bool:
    return bool(module.Comm.Get_parent() != module.COMM_NULL)


def _show_all(show: Show, found: Iterable[Finding]) -> None:
    for finding in found:
        show(finding)
