"""How a process ends after a rank has been lost: by Abort, since MPI_Finalize would wait for that rank."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from mpi4py import MPI

_GRACE_SECONDS = 1.0
_ABORT_SECONDS = 10
_MAPS = Path("/proc/self/maps")
_SHARED = ("mpich_shm_", "Intel_MPI_", "ucx_shm_", "sm_segment.", "vader_segment.")


@cache
def abort_at_exit() -> None:
    """Let this process end by MPI_Abort, whenever it ends; its user may still catch the error and save work.

    mpi4py calls MPI_Finalize after Python's own exit handlers, so that this one comes first.
    """
    atexit.register(_abort, os.getpid())


def shared_segments(maps: Iterable[str]) -> set[Path]:
    """The files of MPI's shared memory among the lines of ``/proc/self/maps``.

    Examples
    --------
    >>> sorted(map(str, shared_segments(["7f1c-7f2c rw-s 00000000 00:1a 9 /dev/shm/mpich_shm_5_0"])))
    ['/dev/shm/mpich_shm_5_0']
    """
    paths = {Path(line.split(maxsplit=5)[5].strip()) for line in maps if " /dev/shm/" in line}
    return {path for path in paths if path.parent == Path("/dev/shm") and path.name.startswith(_SHARED)}


def abort(code: int, grace: float) -> NoReturn:
    """End all processes of this run now.

    Parameters
    ----------
    code : int
        The exit code.
    grace : float
        Seconds that the others still have: they, too, may be telling what has happened.
    """
    if hasattr(signal, "alarm") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # should anything here hang, Abort included
        signal.alarm(_ABORT_SECONDS)
    try:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # nobody reads it, or the disk is full: no reason to stay
                stream.flush()
        _remove_shared_memory()  # before the grace: the launcher may end this process in it
        with suppress(KeyboardInterrupt):
            time.sleep(grace)
        MPI.COMM_WORLD.Abort(code)
    finally:
        os._exit(code)  # MPICH's Abort only asks the launcher to end all, and returns: Finalize would be next


def _abort(pid: int) -> None:
    if os.getpid() == pid and not MPI.Is_finalized():  # no forked child
        abort(1, _GRACE_SECONDS)


def _remove_shared_memory() -> None:
    """MPICH's Abort leaves its files in /dev/shm, where they take memory. All ranks have opened them."""
    if not _MAPS.exists():
        return
    with _MAPS.open(encoding="utf-8", errors="replace") as maps:
        segments = shared_segments(maps)
    for segment in segments:
        with suppress(OSError):  # another rank was first
            segment.unlink()
