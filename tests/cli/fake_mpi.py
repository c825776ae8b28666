"""A stand-in for mpi4py, so that any MPI, sound or not, can be met on any machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOTS = [str(Path(__file__).parents[2] / root) for root in ("", "backends", "transports")]

PACKAGE = """
class Rc:
    initialize, threads, thread_level, finalize = True, True, "multiple", None
rc = Rc()
"""

MODULE = """
import mpi4py, os, signal, sys, time
THREAD_SINGLE, THREAD_FUNNELED, THREAD_SERIALIZED, THREAD_MULTIPLE = range(4)
TAG_UB, COMM_NULL = 7, None
started = False

def Get_library_version(): return {library!r}
def Get_version(): return (4, 1)
def Is_initialized(): return started
def Is_finalized(): return False
def Query_thread(): return {level}
def Init_thread(level=THREAD_MULTIPLE):
    global started
    {at_start}
    started = True
    return {level}

class Comm:
    @staticmethod
    def Get_parent(): return COMM_NULL
class World:
    def Get_attr(self, key): return 32767
    def Get_size(self): return {size}
    def Get_rank(self): return 0
    def Get_info(self): raise NotImplementedError
COMM_WORLD = World()

{at_import}
if mpi4py.rc.initialize:
    Init_thread()
"""

OPEN_MPI = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11\0"
MPICH = "MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25 20:45:26 UTC 2026\n"

PMI = {"rank": "PMI_RANK", "size": "PMI_SIZE"}
OMPI = {"rank": "OMPI_COMM_WORLD_RANK", "size": "OMPI_COMM_WORLD_SIZE"}
SRUN = {"rank": "SLURM_PROCID", "size": "SLURM_STEP_NUM_TASKS"}


def install(
    folder: Path, library: str, at_start: str = "pass", at_import: str = "", size: int = 1, level: int = 3
) -> Path:
    """Write a package ``mpi4py`` into a folder, with code to run when it is imported, or when MPI starts."""
    package = folder / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "MPI.py").write_text(
        MODULE.format(library=library, at_start=at_start, at_import=at_import, size=size, level=level)
    )
    return folder


def clean_environment() -> dict[str, str]:
    """This process's environment, without what an MPI launcher or a user has added."""
    unwanted = (
        "PMI",
        "OMPI",
        "PMIX",
        "PRTE",
        "SLURM",
        "MPI_",
        "MV2",
        "HYDRA",
        "JSM",
        "FLUX",
        "OPENBLAS",
        "OMP_",
    )
    unwanted += ("MKL_", "RINGCORE_", "COLUMNS", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}


def run_all(
    folder: Path, launcher: Mapping[str, str], ranks: int = 2, *options: str
) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of ``ringcore doctor`` on each rank of a launcher that MPI may not know.

    This is what mpirun does: it starts processes and sets their variables.
    """
    environment = clean_environment() | {"PYTHONPATH": os.pathsep.join([str(folder), *ROOTS])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "ringcore", "doctor", *options],
            env=environment | {launcher["rank"]: str(rank), launcher["size"]: str(ranks)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]
