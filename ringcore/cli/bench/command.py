"""The command itself: options, a plan, the ranks that carry it out, the report, the exit code."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import ringcore as rc
from ringcore.cli.bench import about, files, record, room, screen
from ringcore.cli.bench.about import Plan
from ringcore.cli.bench.gemm import Gemm, cores_of
from ringcore.cli.bench.masks import KNOWN
from ringcore.cli.bench.measure import How
from ringcore.cli.bench.progress import followed
from ringcore.cli.bench.rows import BOTH, FORWARD, listed, numbers, rows, spreads
from ringcore.cli.bench.run import Outcome, on_ring, on_threads
from ringcore.cli.errors import InputError
from ringcore.cli.stop import Stopped
from ringcore.cli.verify.command import MOST_RANKS
from ringcore.cli.verify.libraries import DTYPES, chosen, load
from ringcore.cli.verify.together import everywhere, from_first
from ringcore.cli.world import world
from ringcore.launcher import launched
from ringcore.testing import digest

MOST_HEADS, MOST_DIM, MOST_LOOPS = 4096, 4096, 10_000

Several = list[str] | None


def bench(
    length: Annotated[
        Several, typer.Option("-n", "--length", metavar="S", help="Tokens; 4096 by default; or several.")
    ] = None,
    heads: Annotated[int, typer.Option(metavar="H", help="Query heads.")] = 4,
    kv_heads: Annotated[
        int | None, typer.Option(metavar="G", help="Heads of keys and values; as many by default.")
    ] = None,
    dim: Annotated[Several, typer.Option(metavar="D", help="Head dim; 64 by default; or several.")] = None,
    mask: Annotated[Several, typer.Option(metavar="MASK", help=f"{KNOWN}. By default full,causal.")] = None,
    layout: Annotated[
        Several, typer.Option(metavar="NAME", help="contiguous, striped, striped:BLOCK, zigzag (default).")
    ] = None,
    direction: Annotated[
        Several, typer.Option(metavar="NAME", help="forward, both (with backward). By default forward,both.")
    ] = None,
    dtype: Annotated[
        Several, typer.Option(metavar="NAME", help="float64, float32 (default), float16, bfloat16.")
    ] = None,
    library: Annotated[
        Several, typer.Option(metavar="NAME", help="numpy (default), torch, jax, array_api_strict, cupy.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ranks: threads of this process. 1 by default; not under mpirun."),
    ] = None,
    skip: Annotated[int, typer.Option("-s", "--skip", metavar="N", help="Calls to warm up, not timed.")] = 1,
    loop: Annotated[
        int | None,
        typer.Option(
            "-l", "--loop", metavar="N", help="Timed loops; by default as --seconds allows, 3 to 25."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="For all rows together, unless -l says how often.")
    ] = 20.0,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Solve it on rank 0 alone, too: speed-up, efficiency.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long a rank waits for a silent one.")
    ] = 120.0,
    json_: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write all figures to a file.")
    ] = None,
    plot_: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="Also draw the share of GEMM over S.")
    ] = None,
) -> int:
    """Measure attention: how fast, how near to the matrix product, what moves.

    Alone or under mpirun. Options that take several values have commas
    between them, or are repeated; each combination is a row. Every row's
    answer is checked before it is timed; exit code 1 if one is wrong.
    -n, -s, -l are size, warm-up and loops, as in mpi4py's bench.
    """
    begin = time.perf_counter()
    for name, value in (("--timeout", timeout), ("--seconds", seconds)):
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be a positive number of seconds. Got {value:g}.")
    ring = world(timeout)

    def prepared() -> Plan:
        count = _ranks(ranks, ring)
        names = listed("--library", library or (), "numpy")
        dtypes = tuple(listed("--dtype", dtype or (), "float32", DTYPES))
        if not 1 <= heads <= MOST_HEADS:
            raise InputError(f"--heads must be from 1 to {MOST_HEADS}. Got {heads}.")
        groups = heads if kv_heads is None else kv_heads
        if groups < 1 or heads % groups:
            raise InputError(f"--kv-heads must divide --heads, {heads}. Got {groups}.")
        for name, value, least in (("--skip", skip, 0), ("--loop", 1 if loop is None else loop, 1)):
            if not least <= value <= MOST_LOOPS:
                raise InputError(f"{name} must be from {least} to {MOST_LOOPS}. Got {value}.")
        options = {
            "lengths": numbers("--length", length or (), "4096"),
            "dims": numbers("--dim", dim or (), "64", MOST_DIM),
            "layouts": spreads(layout or (), "zigzag"),
            "directions": listed("--direction", direction or (), f"{FORWARD},{BOTH}", (FORWARD, BOTH)),
            "masks": listed("--mask", mask or (), "full,causal"),
        }
        loaded = [load(name) for name in names]
        found = rows(
            [(one, chosen(one, dtypes)) for one in loaded],
            heads=heads, kv_heads=groups, **options,  # type: ignore[arg-type]
        )  # fmt: skip
        if ring.rank == 0:
            for name, path in (("--json", json_), ("--plot", plot_)):
                if path is not None:
                    files.check(name, path)
            if plot_ is not None and plot_.suffix.lower() != ".png":
                raise InputError(f"--plot must be a file whose name ends in .png. Got {plot_}.")
        how = How(skip, loop, seconds / len(found), scaling)
        return Plan(tuple(found), how, count, ring.size > 1, seconds)

    made = everywhere(ring, prepared, _in_common)
    room.check(made.rows, ring, made.ranks, scaling)
    outcomes = _outcomes(made, ring)
    spent = time.perf_counter() - begin

    def told() -> None:
        if ring.rank > 0:
            return
        screen.report(_console(), outcomes, len(made.rows), about.closing(made, spent))
        if json_ is not None:
            files.write("--json", json_, record.content(outcomes, len(made.rows), about.facts(made)))
        if plot_ is not None and any(outcome.figures for outcome in outcomes):
            from ringcore.cli.bench.plot import picture  # slow to import: not before anybody can see an error

            files.write("--plot", plot_, picture(outcomes, about.where(made)))

    if outcomes[-1].stops:  # ranks cannot tell each other anything any more
        told()
        return 1 if ring.rank == 0 else _leave(outcomes[-1])
    everywhere(ring, told)
    return from_first(ring, int(any(outcome.fault for outcome in outcomes)))


def _ranks(asked: int | None, ring: rc.Ring) -> int:
    if ring.size > 1:
        if asked is not None:
            raise InputError(
                f"--ranks is for threads of one process. Got {asked} under mpirun, which has started "
                f"{ring.size} processes. Leave it out: each process is a rank."
            )
        return ring.size
    if asked is not None and not 1 <= asked <= MOST_RANKS:
        raise InputError(f"--ranks must be from 1 to {MOST_RANKS} on this machine. Got {asked}.")
    return asked or 1


def _in_common(made: Plan) -> str:
    named = [(row.library.version, about.heading(row), str(row)) for row in made.rows]
    what = digest(named, made.how, made.seconds)
    return f"{len(made.rows)} rows ({what})"


def _outcomes(made: Plan, ring: rc.Ring) -> list[Outcome]:
    console = _console(stderr=True) if ring.rank == 0 else None
    gemm = Gemm(cores_of(ring.transport.cores))
    try:
        gemm.prepare("float32")
        ring.transport.allgather_bytes(b"", ring.timeout)
        note = json.dumps([gemm.cores, gemm.seconds("float32"), gemm.flops]).encode()
        notes = [json.loads(x) for x in ring.transport.allgather_bytes(note, ring.timeout)]
        cores, times, flops = zip(*notes, strict=True)
        if console is not None:
            text = about.opening(made, sum(cores), max(times), sum(flops) / max(times) / 1e9)
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        with followed(made.rows, console) as tell:
            if made.processes:
                return list(on_ring(ring, made.rows, made.how, gemm, tell))
            return list(on_threads(made.ranks, made.rows, made.how, gemm, tell, timeout=ring.timeout))
    finally:
        gemm.close()


def _leave(last: Outcome) -> NoReturn:
    """End a rank other than the first after the ring has broken; if the cause is here, tell it."""
    cause = f"{last.row}: {last.fault.rstrip('.')}"
    raise Stopped(cause, 1, outcome="See what rank 0 says.", aloud=last.caused_here)


def _console(*, stderr: bool = False) -> Console:
    """Open MPI gives its processes a terminal, wherever its own output goes."""
    return Console(stderr=stderr, emoji=False, force_terminal=None if launched() is None else False)
