"""The command itself: probes in order, each line shown as soon as it is known."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from ringcore.cli.doctor import blas, cores, ranks, software
from ringcore.cli.doctor.finding import Finding, failed, findings
from ringcore.cli.doctor.meeting import meet
from ringcore.cli.doctor.screen import Screen, as_json, exit_code
from ringcore.cli.world import is_first
from ringcore.launcher import launched

LOCAL = (
    ("ringcore", software.own),
    ("Python", software.python),
    ("Array libraries", software.arrays),
    ("BLAS", blas.blas),
    ("Extras", software.extras),
)


def doctor(
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")] = False,
) -> int:
    """Tell what this machine offers, what is missing and the line that brings it.

    Python, array libraries, BLAS, MPI, GPUs, cores per rank; alone or under
    mpirun, where the first rank speaks for all. Exit code 1 if something
    does not work, 0 otherwise.
    """
    launch = launched()
    speaks = is_first()
    found: list[Finding] = []
    # Open MPI gives its processes a terminal, wherever its own output goes.
    console = Console(emoji=False, force_terminal=None if launch is None else False)
    screen = Screen(console) if speaks and not json_ else None

    def show(finding: Finding) -> None:
        found.append(finding)
        if screen is not None:
            screen.show(finding)

    if speaks:
        for section, probe in LOCAL:
            for finding in findings(section, probe):
                show(finding)
    meeting = meet(launch, show)
    mine = ranks.own(meeting.ring, meeting.facts)
    everybody = [mine]
    try:
        everybody = ranks.gathered(meeting.ring, mine)
    except Exception as error:
        show(failed(ranks.SECTION, "gathering", error, "problem"))
    if not speaks:
        return 0
    for finding in (
        *findings(cores.SECTION, cores.node),
        *findings(cores.SECTION, cores.shares, everybody, mine, launch),
        *(findings(ranks.SECTION, ranks.nodes, everybody) if len(everybody) > 1 else ()),
        *findings(ranks.SECTION, ranks.differences, everybody),
    ):
        show(finding)
    if screen is None:
        print(as_json(found, everybody))
    else:
        screen.close(found)
    return exit_code(found)
