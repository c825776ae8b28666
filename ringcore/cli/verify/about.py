"""What was verified, in words: which libraries, on which ring, how to repeat it."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ringcore.cli.verify.cases import Case
from ringcore.cli.verify.libraries import Library
from ringcore.cli.version import installed_version


@dataclass(frozen=True)
class Asked:
    """The options, as given."""

    ranks: int | None
    library: tuple[str, ...]
    dtype: tuple[str, ...]
    length: int | None
    seed: int
    rounds: int
    quick: bool
    only: str
    timeout: float


@dataclass(frozen=True)
class Plan:
    """What is going to be done.

    Attributes
    ----------
    asked : Asked
    ranks, length : int
        P and S.
    processes : bool
        Whether ranks are processes, or threads.
    libraries : tuple of Library
    cases : sequence of Case
    """

    asked: Asked
    ranks: int
    length: int
    processes: bool
    libraries: tuple[Library, ...]
    cases: Sequence[Case]


def repeat(made: Plan) -> str:
    """The command line of a single case, but for its name, which tells library and dtype."""
    start = f"mpirun -n {made.ranks} ringcore verify" if made.processes else "ringcore verify"
    parts = [start, *([] if made.processes else [f"--ranks {made.ranks}"])]
    parts += [f"--length {made.length}", f"--seed {made.asked.seed}"]
    parts += [f"--rounds {made.asked.rounds}"] if made.asked.rounds > 1 else []
    parts += [f"--library {shlex.quote(library.name)}" for library in made.libraries]
    return " ".join(parts)


def closing(made: Plan, seconds: float) -> tuple[str, str]:
    """Two lines under the verdict."""
    names = ", ".join(f"{library.name} {library.version}" for library in made.libraries)
    return (
        f"{names} on {_ring(made)}; S = {made.length}, seed {made.asked.seed}, {seconds:.0f} s",
        f"ringcore {installed_version()}, Python {platform.python_version()}, {platform.machine()}",
    )


def facts(made: Plan) -> dict[str, Any]:
    """The same for programs."""
    return {
        "arguments": asdict(made.asked),
        "ranks": made.ranks,
        "length": made.length,
        "transport": _mpi() if made.processes else "threads",
        "versions": {
            "ringcore": installed_version(),
            "python": platform.python_version(),
            **{library.name: library.version for library in made.libraries},
        },
        "machine": {"system": platform.platform(), "processor": platform.machine()},
    }


def _ring(made: Plan) -> str:
    if made.processes:
        return f"{made.ranks} processes ({_mpi()})"
    return "1 rank" if made.ranks == 1 else f"{made.ranks} threads"


def _mpi() -> str:
    """Name and version of the MPI library that is in use."""
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is None:
        return "MPI"
    return " ".join(str(MPI.Get_library_version()).partition("\n")[0].split(",")[0].split())
