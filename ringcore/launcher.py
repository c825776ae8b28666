"""What an MPI launcher says about the process it has started, without loading MPI.

Every launcher tells its processes their rank and number in environment variables. That is known before
MPI starts, and true even where MPI then starts wrongly. A program that a rank starts inherits the variables,
but is no rank.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launcher:
    """The variables in which a launcher names a process's rank and the number of processes."""

    name: str
    rank: str
    size: str


LAUNCHERS = (
    Launcher("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    Launcher("the mpirun of MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE"),
    Launcher("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    Launcher("jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    Launcher("flux run", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    # Only srun sets the step's variables; SLURM_NTASKS is there in a batch script's one process, too.
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""In the order of asking: mpirun inside a Slurm job is the one that started this process."""


@dataclass(frozen=True)
class Launch:
    """A process's place among those that were started together.

    Attributes
    ----------
    launcher : str
        As in messages.
    rank, size : int
    """

    launcher: str
    rank: int
    size: int


def launched(environ: Mapping[str, str] | None = None) -> Launch | None:
    """What the launcher of this process says; None if nothing has launched it.

    Parameters
    ----------
    environ : mapping, optional
        The environment to read; this process's by default.

    Examples
    --------
    >>> launched({"PMI_RANK": "1", "PMI_SIZE": "4"})
    Launch(launcher='the mpirun of MPICH or Intel MPI', rank=1, size=4)
    >>> launched({}) is None
    True
    """
    environ = os.environ if environ is None else environ
    for launcher in LAUNCHERS:
        rank, size = environ.get(launcher.rank, ""), environ.get(launcher.size, "")
        if rank.isdecimal() and size.isdecimal() and not _inherited(launcher, environ):
            return Launch(launcher.name, int(rank), int(size))
    return None


def claim() -> None:
    """Note that this process is the rank it was launched as: a program that it starts is not."""
    os.environ[_CLAIM] = _claim(os.environ)


_CLAIM = "RINGCORE_RANK_PROCESS"
_JOB = ("PMIX_NAMESPACE", "PMI_FD", "SLURM_JOB_ID", "SLURM_STEP_ID")


def _claim(environ: Mapping[str, str]) -> str:
    """This process and its job: a launcher that a rank starts gives its processes another job."""
    return " ".join([str(os.getpid()), *(environ.get(name, "-") for name in _JOB)])


def _inherited(launcher: Launcher, environ: Mapping[str, str]) -> bool:
    """Whether the variables are those of a rank that has started this process as a program of its own."""
    handle = environ.get("PMI_FD", "") if launcher.rank == "PMI_RANK" else ""
    if handle.isdecimal():  # MPICH's line to the launcher, which programs do not inherit
        try:
            os.fstat(int(handle))
        except OSError:
            return True
        return False
    claimed, here = environ.get(_CLAIM, ""), _claim(environ)
    return claimed != here and claimed.partition(" ")[2] == here.partition(" ")[2] != ""
