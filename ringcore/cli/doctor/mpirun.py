"""Which ``mpirun`` and ``mpiexec`` a shell would find, and the one that belongs to a library."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ringcore.cli.doctor.finding import Finding
from ringcore.cli.doctor.vendors import strangers, vendor

NAMES = ("mpirun", "mpiexec")
SECONDS = 2.0


def in_path(library: str | None, libmpi: str | None) -> Iterator[Finding]:
    """The launchers in PATH, and whether they fit the MPI library that mpi4py loads.

    Parameters
    ----------
    library : str or None
        What `MPI.Get_library_version()` says; None if no library loads.
    libmpi : str or None
        The library's file.
    """
    _, family = vendor(library or "")
    own = beside(libmpi, family)
    cure = f"start with {own}" if own else None
    found = [path for path in map(shutil.which, NAMES) if path is not None]
    for path in found:
        said = version(path)
        name, theirs = vendor(said)
        value = path if said == "" else f"{path}: {name}{_number(said)}"
        name = f"{Path(path).name} in PATH"
        if strangers(family, theirs):
            value += "; of another MPI than the one that mpi4py loads: N processes would each be alone"
            yield Finding("MPI", name, value, "warning", cure or "start with the mpirun of that MPI")
        else:
            yield Finding("MPI", name, value)
    if library is not None and not found:
        yield Finding(
            "MPI", "mpirun in PATH", "none", "note", cure or "put the bin folder of that MPI into PATH"
        )


def version(path: str, seconds: float = SECONDS) -> str:
    """What a launcher prints as its version; empty if it does not, or not in time."""
    try:
        process = subprocess.Popen(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a wrapper's children end with it
        )
    except OSError:
        return ""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return ""


def _number(said: str) -> str:
    """The first version number in a text.

    Examples
    --------
    >>> _number("HYDRA build details:\\n    Version:   5.0.2\\n")
    ' 5.0.2'
    """
    match = re.search(r"\d+(\.\d+)+\w*", said)
    return f" {match.group()}" if match else ""


def beside(libmpi: str | None, family: str) -> str | None:
    """The launcher that was installed together with an MPI library, if it can be told.

    It lies in ``bin`` next to the library's folder, or, where a system has several MPIs,
    bears the family's name.
    """
    if libmpi is None:
        return None
    folders = Path(libmpi).parents
    suffix = {"Open MPI": ".openmpi", "MPICH": ".mpich"}.get(family)
    named = [folder / "bin" / (name + suffix) for folder in folders for name in NAMES] if suffix else []
    plain = [folder / "bin" / name for folder in list(folders)[:3] for name in NAMES]
    return next((str(path) for path in [*named, *plain] if os.access(path, os.X_OK)), None)
