"""The command itself: its options, and who does what.

Alone, or on rank 0 under mpirun, a process does everything but the attention; that is done by all ranks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ringcore.cli.errors import InputError
from ringcore.cli.genome.lead import Request, lead
from ringcore.cli.genome.processes import follow, leading
from ringcore.cli.genome.ranks import ThreadRanks
from ringcore.cli.world import world

MOST_RANKS = max(16, 4 * (os.cpu_count() or 1))
"""Of threads: more than a few a core only wait for each other, and P of them meet P^2 times."""


def genome(
    path: Annotated[Path, typer.Argument(metavar="FASTA", help="DNA or RNA, plain or gzip.")],
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Threads that share the work as ranks; not needed under mpirun."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; may exist.")] = Path(
        "ringcore-genome"
    ),
    record: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this record; may be given several times.")
    ] = None,
    region_: Annotated[
        str | None,
        typer.Option("--region", metavar="NAME:START-END", help="Only these bases, from 1, both included."),
    ] = None,
    context: Annotated[
        int | None, typer.Option(metavar="W", help="Bases that are compared; chosen for the genome's size.")
    ] = None,
    sharpness: Annotated[
        float | None, typer.Option(metavar="B", help="Score of one equal base; 3 by default.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Start even if it takes over 24 hours or more memory than is free."),
    ] = False,
) -> None:
    """Find where a genome repeats itself, on either strand, however far apart.

    Exact attention of every position over all positions of both strands,
    with no trained weights, finds exact repeats and the bits per base that
    they leave. Each record is a genome of its own.
    """
    request = Request(path, ranks, out, record, region_, context, sharpness, force)
    ring = world()
    if ring.size == 1:
        _check_threads(ranks)
        lead(request, ThreadRanks(ranks or 1))
    elif ring.rank == 0:
        with leading(ring) as crew:
            _check_processes(ranks, ring.size)
            lead(request, crew)
    else:
        raise typer.Exit(follow(ring))


def _check_threads(ranks: int | None) -> None:
    if ranks is not None and not 1 <= ranks <= MOST_RANKS:
        raise InputError(
            f"--ranks must be from 1 to {MOST_RANKS} on this machine. Got {ranks}. "
            "Leave it out: one rank uses all cores already."
        )


def _check_processes(ranks: int | None, size: int) -> None:
    if ranks not in (None, size):
        raise InputError(
            f"--ranks must be the number of processes that were started, {size}. Got {ranks}. Leave it out."
        )
