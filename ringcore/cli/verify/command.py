"""The command itself: options, a plan, the ranks that carry it out, the report, the exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import ringcore as rc
from ringcore.cli.errors import InputError
from ringcore.cli.stop import Stopped
from ringcore.cli.verify import about, record, screen
from ringcore.cli.verify.about import Asked, Plan
from ringcore.cli.verify.cases import default_length, plan
from ringcore.cli.verify.libraries import chosen, load
from ringcore.cli.verify.outcome import Outcome
from ringcore.cli.verify.progress import followed
from ringcore.cli.verify.run import on_ring, on_threads
from ringcore.cli.verify.tally import Tally
from ringcore.cli.verify.together import everywhere, from_first
from ringcore.cli.world import world
from ringcore.launcher import launched
from ringcore.testing import digest

MOST_RANKS = max(16, 4 * (os.cpu_count() or 1))
LENGTHS = (8, 1024)
_THREADS = 4


def verify(
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ranks: threads of this process. 4 by default; not under mpirun."),
    ] = None,
    library: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="numpy (default), torch, jax, array_api_strict, cupy; repeatable."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="float64, float32, float16, bfloat16; all by default; repeatable."),
    ] = None,
    length: Annotated[
        int | None, typer.Option(metavar="S", help="Tokens in most problems; 83 on few ranks.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all values.")] = 0,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="Go through all problems so often, with other values.")
    ] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Each row in one dtype only: a quarter.")] = False,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Only the problem of this name, or those whose name holds it.")
    ] = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a rank waits for a silent one.")
    ] = 120.0,
    json_: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all findings to a file.")
    ] = None,
) -> int:
    """Hold this machine, its array library and its MPI to the contract.

    Attention and feedforward layers, forward and backward, over layouts,
    masks, dtypes and shapes are solved on a ring and compared with dense
    float64. Alone (ranks are threads) or under mpirun. Exit code 0 if every
    element of every result is within the bound, 1 if one is not.
    """
    begin = time.perf_counter()
    asked = Asked(
        ranks, tuple(library or ["numpy"]), tuple(dtype or ()), length, seed, rounds, quick, only, timeout
    )
    if not timeout > 0:
        raise InputError(f"--timeout must be a positive number of seconds. Got {timeout:g}.")
    ring = world(timeout)

    def prepared() -> Plan:
        made = _planned(asked, ring)
        if json_ is not None and ring.rank == 0:
            record.check(json_)
        return made

    made = everywhere(ring, prepared, _in_common)
    tally = Tally()
    for outcome in _outcomes(made, ring):
        tally.add(outcome)

    def told() -> None:
        if ring.rank > 0:
            return
        screen.report(_console(), tally, len(made.cases), about.repeat(made), about.closing(made, spent))
        if json_ is not None:
            record.write(json_, record.content(tally, len(made.cases), about.facts(made)))

    spent = time.perf_counter() - begin
    if tally.stopped:  # ranks cannot tell each other anything any more
        told()
        return 1 if ring.rank == 0 else _leave(tally)
    everywhere(ring, told)
    return from_first(ring, int(not tally.passed))


def _planned(asked: Asked, ring: rc.Ring) -> Plan:
    """Check all options, load the libraries, lay out the cases."""
    ranks = _ranks(asked.ranks, ring)
    shortest, longest = LENGTHS
    length = min(default_length(ranks), longest) if asked.length is None else asked.length
    if not shortest <= length <= longest:
        raise InputError(
            f"--length must be from {shortest} to {longest}: the reference holds S x S matrices. "
            f"Got {length}."
        )
    if asked.rounds < 1:
        raise InputError(f"--rounds must be at least 1. Got {asked.rounds}.")
    libraries = tuple(load(name) for name in dict.fromkeys(asked.library))
    cases = plan(
        [(library, chosen(library, asked.dtype)) for library in libraries],
        ranks,
        length,
        seed=asked.seed,
        rounds=asked.rounds,
        quick=asked.quick,
        only=asked.only,
    )
    if not cases:
        raise InputError(
            f"--only must be part of a problem's name, such as mask/causal or scores. Got {asked.only}, "
            "which is in none. Leave it out to see the rows that names are made of."
        )
    return Plan(asked, ranks, length, ring.size > 1, libraries, cases)


def _ranks(asked: int | None, ring: rc.Ring) -> int:
    if ring.size > 1:
        if asked is not None:
            raise InputError(
                f"--ranks is for threads of one process. Got {asked} under mpirun, which has started "
                f"{ring.size} processes. Leave it out: each process is a rank."
            )
        return ring.size
    if asked is None:
        return _THREADS if launched() is None else 1
    if not 1 <= asked <= MOST_RANKS:
        raise InputError(f"--ranks must be from 1 to {MOST_RANKS} on this machine. Got {asked}.")
    return asked


def _in_common(made: Plan) -> str:
    names = digest([case.name for case in made.cases], made.asked)
    return f"{len(made.cases)} problems of {made.length} tokens ({names})"


def _outcomes(made: Plan, ring: rc.Ring) -> Iterator[Outcome]:
    if made.processes:
        outcomes = on_ring(ring, made.cases)
    else:
        outcomes = on_threads(made.ranks, made.cases, timeout=made.asked.timeout)
    if ring.rank > 0:
        return outcomes
    console = _console(stderr=True)
    for library in made.libraries:
        if library.lacking and not made.asked.dtype:
            console.print(f"left out: {library.lacking}", highlight=False, markup=False)
    return followed(outcomes, len(made.cases), console)


def _leave(tally: Tally) -> NoReturn:
    """End a rank other than the first after the ring has broken; if the cause is here, tell it."""
    outcome = tally.failures[-1]
    (fault,) = outcome.faults
    cause = f"{outcome.case.name}: " + fault.message.partition("\n")[0].rstrip(".")
    aloud = fault.quantity == "error"
    raise Stopped(cause, 1, outcome="See what rank 0 says.", aloud=aloud)


def _console(*, stderr: bool = False) -> Console:
    """Open MPI gives its processes a terminal, wherever its own output goes."""
    return Console(stderr=stderr, emoji=False, force_terminal=None if launched() is None else False)
