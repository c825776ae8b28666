"""What MPI says of itself. Also a script that prints it: ``python -P mpi_facts.py``, standard library only.

MPI may end the process that starts it, or never return. As a script it does so in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import signal
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LEVELS = ("single", "funneled", "serialized", "multiple")
MARK = "ringcore-mpi-facts "
"""Begins the line with the answer: MPI libraries print, too."""


@dataclass(frozen=True)
class MpiFacts:
    """What an MPI that has started says of itself.

    Attributes
    ----------
    library : str
        Vendor and version.
    path : str or None
        The library's file, where the system tells.
    standard : str
        Version of the MPI standard.
    asked, provided : str
        Thread level, one of `LEVELS`.
    tag_ub : int or None
        Largest tag.
    cuda_query : bool or None
        What `MPIX_Query_cuda_support` says; None if the library has no such function.
    memory_kinds : str or None
        The communicator's ``mpi_memory_alloc_kinds`` (MPI 4.1).
    size : int
        Processes in MPI_COMM_WORLD.
    """

    library: str
    path: str | None
    standard: str
    asked: str
    provided: str
    tag_ub: int | None
    cuda_query: bool | None
    memory_kinds: str | None
    size: int


def load() -> Any:
    """mpi4py's module ``MPI``, with its library loaded but, if this is the first import, not yet started.

    Raises
    ------
    ImportError, RuntimeError
        If mpi4py is not there, or finds no MPI library.
    """
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    from mpi4py import MPI

    return MPI


def start(mpi: Any) -> None:
    """Start MPI as importing mpi4py would have done."""
    if not mpi.Is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that the launcher is another MPI's: told anyway
            mpi.Init_thread(getattr(mpi, f"THREAD_{asked_level().upper()}"))


def asked_level() -> str:
    """The thread level that mpi4py asks for."""
    import mpi4py

    return str(mpi4py.rc.thread_level) if mpi4py.rc.threads else "single"


def library_version(mpi: Any) -> str:
    """Vendor and version in a few words; MPI need not have started."""
    first = str(mpi.Get_library_version()).replace("\0", "").strip().partition("\n")[0]
    return " ".join(first.partition(", package:")[0].split())  # Open MPI goes on with who has built it


def read(mpi: Any) -> MpiFacts:
    """The facts of an MPI that has started."""
    path = libmpi()
    levels = {getattr(mpi, f"THREAD_{level.upper()}"): level for level in LEVELS}
    return MpiFacts(
        library=library_version(mpi),
        path=path,
        standard=".".join(map(str, mpi.Get_version())),
        asked=asked_level(),
        provided=levels[mpi.Query_thread()],
        tag_ub=mpi.COMM_WORLD.Get_attr(mpi.TAG_UB),
        cuda_query=_cuda_query(path),
        memory_kinds=_memory_kinds(mpi),
        size=mpi.COMM_WORLD.Get_size(),
    )


def libmpi(maps: str = "/proc/self/maps") -> str | None:
    """The file of the MPI library that this process has loaded; None where the system does not tell."""
    try:
        lines = Path(maps).read_text(errors="replace").splitlines()
    except OSError:
        return None
    files = {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}
    found = [file for file in files if re.fullmatch(r"libp?mpi\w*\.so[.\d]*", Path(file).name)]
    # libmpi itself has the shortest name: libmpifort, libmpi_usempif08 and others come with it.
    return min(found, key=lambda file: (len(Path(file).name), file), default=None)


def _cuda_query(path: str | None) -> bool | None:
    """Ask the library. Trying it with a device buffer would end the process if it cannot."""
    if path is None:
        return None
    try:
        query = ctypes.CDLL(path).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return None
    query.restype = ctypes.c_int
    return bool(query())


def _memory_kinds(mpi: Any) -> str | None:
    with contextlib.suppress(Exception):  # before MPI 4.1 communicators need not have such a key
        info = mpi.COMM_WORLD.Get_info()
        kinds = info.Get("mpi_memory_alloc_kinds")
        info.Free()
        return None if kinds is None else str(kinds)
    return None


def main(seconds: int) -> None:
    """Print the facts, or why MPI cannot be loaded, as one line of JSON; end after ``seconds`` at last."""
    signal.alarm(seconds)  # its default action ends the process even inside a call that never returns
    try:
        mpi = load()
    except (ImportError, RuntimeError) as error:
        print(MARK + json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        return
    start(mpi)
    print(MARK + json.dumps(asdict(read(mpi))), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
