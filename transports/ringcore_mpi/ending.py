"""How a process ends after a rank has been lost: by Abort, since MPI_Finalize would wait for that rank."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from functools import cache

from mpi4py import MPI

_GRACE_SECONDS = 1.0
_ABORT_SECONDS = 10.0


@cache
def abort_at_exit() -> None:
    """Let this process end by MPI_Abort, whenever it ends; its user may still catch the error and save work.

    mpi4py calls MPI_Finalize after Python's own exit handlers, so that this one comes first.
    """
    atexit.register(_abort)


def _abort() -> None:
    if MPI.Is_finalized():
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    time.sleep(_GRACE_SECONDS)  # Abort ends all ranks: they, too, may be telling what has happened
    ender = threading.Timer(_ABORT_SECONDS, os._exit, args=(1,))  # should Abort itself hang
    ender.daemon = True
    ender.start()
    MPI.COMM_WORLD.Abort(1)
