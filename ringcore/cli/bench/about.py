"""What was measured, in words: which problem, on which ring, with what."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringcore.cli.bench.measure import FEWEST, How
from ringcore.cli.bench.rows import Row
from ringcore.cli.doctor.cores import processor
from ringcore.cli.version import installed_version


@dataclass(frozen=True)
class Plan:
    """What is going to be measured.

    Attributes
    ----------
    rows : tuple of Row
    how : How
    ranks : int
    processes : bool
        Whether ranks are processes, or threads.
    seconds : float
        For all rows together, where ``how`` has no number of loops.
    """

    rows: tuple[Row, ...]
    how: How
    ranks: int
    processes: bool
    seconds: float


def ring(made: Plan) -> str:
    """Who takes part."""
    if made.processes:
        return f"{made.ranks} processes ({_mpi()})"
    return "1 rank" if made.ranks == 1 else f"{made.ranks} ranks, threads of one process"


def opening(made: Plan, cores: int, gemm_seconds: float, gflops: float) -> str:
    """What it will do, and how long that takes, by a guess.

    Parameters
    ----------
    made : Plan
    cores : int
        Of all processes.
    gemm_seconds : float
        Of the matrix products beside each loop.
    gflops : float
        Of matrix products on them, in 10^9 a second.
    """
    count = len(made.rows)
    start = f"{count} {'row' if count == 1 else 'rows'} on {ring(made)} with {cores} {_cores(cores)}"
    loops = made.how.loop or FEWEST
    calls = made.how.skip + 2 + loops + made.how.scaling * (loops + 1) * cores
    attention = calls * sum(row.flops for row in made.rows) / (gflops * 1e9 / 2)  # it reaches half of that
    seconds = attention + count * ((loops + 1) * gemm_seconds + 0.5)
    if made.how.loop is None and seconds <= made.seconds:
        return f"{start}: about {made.seconds:g} s (--seconds)"
    return f"{start}, {loops} loops each: about {_spoken(seconds)}"


def heading(row: Row) -> str:
    """What rows of a table have in common."""
    heads = f"{row.heads} heads" if row.heads > 1 else "1 head"
    groups = "" if row.kv_heads == row.heads else f" over {row.kv_heads} of keys and values"
    return f"{row.library.name} {row.dtype}, {heads}{groups}, D = {row.dim}, {row.spread}"


def closing(made: Plan, seconds: float) -> tuple[str, str]:
    """Two lines under the tables."""
    return (
        f"{where(made)}; {seconds:.0f} s",
        f"ringcore {installed_version()}, Python {platform.python_version()}, {_cpu()}",
    )


def where(made: Plan) -> str:
    """What it ran on, and with."""
    libraries = dict.fromkeys(f"{row.library.name} {row.library.version}" for row in made.rows)
    return f"{', '.join(libraries)} on {ring(made)}"


def facts(made: Plan) -> dict[str, Any]:
    """The same for programs."""
    return {
        "ranks": made.ranks,
        "transport": _mpi() if made.processes else "threads",
        "how": {**asdict(made.how), "seconds": made.seconds},
        "versions": {
            "ringcore": installed_version(),
            "python": platform.python_version(),
            **{row.library.name: row.library.version for row in made.rows},
        },
        "machine": {
            "system": platform.platform(),
            "processor": _cpu(),
        },
    }


def shared(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by heading."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(heading(row), []).append(row)
    return list(groups.values())


def _cpu() -> str:
    return processor(Path("/")) or platform.machine()


def _cores(count: int) -> str:
    return "core" if count == 1 else "cores"


def _spoken(seconds: float) -> str:
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _mpi() -> str:
    """Name and version of the MPI library that is in use."""
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is None:
        return "MPI"
    return " ".join(str(MPI.Get_library_version()).partition("\n")[0].split(",")[0].split())
