"""All processes that ``mpirun`` has started together: their ring, who speaks, how they end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import ringcore as rc
from ringcore import registry
from ringcore.cli.errors import InputError
from ringcore.launcher import launched

_GRACE_SECONDS = 2.0
_ABORT_SECONDS = 5.0


def is_first() -> bool:
    """Whether this process is the one that prints: rank 0, or the only one. Does not load MPI."""
    launch = launched()
    return launch is None or launch.rank == 0


def is_alone() -> bool:
    """Whether no other process takes part. Does not load MPI."""
    launch = launched()
    return launch is None or launch.size == 1


@contextmanager
def first_speaks() -> Iterator[None]:
    """What is printed while the block runs appears on rank 0 only."""
    if is_first():
        yield
        return
    with (
        open(os.devnull, "w") as nowhere,  # noqa: PTH123
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def leave(code: int, *, abort: bool = False) -> NoReturn:
    """End this process now; what it wanted to say has been said.

    Kernels may still run in other threads, for which the ordinary end would wait; as that of MPI would for
    ranks that have left like this.

    Parameters
    ----------
    code : int
        The exit code.
    abort : bool
        Whether to end all other ranks with it, as one of them is lost.

    Notes
    -----
    The launcher ends all ranks as soon as one leaves. So every rank but the first, which has files to see to
    and something to tell, gives it some time.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if not is_first():
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(_GRACE_SECONDS)
    mpi = sys.modules.get("mpi4py.MPI")
    if abort and mpi is not None:
        ender = threading.Timer(_ABORT_SECONDS, os._exit, args=(code,))  # should Abort itself hang
        ender.daemon = True
        ender.start()
        mpi.COMM_WORLD.Abort(code)
    os._exit(code)


def world(timeout: float = 600.0) -> rc.Ring:
    """The ring of all processes of this run. Collective.

    Parameters
    ----------
    timeout : float
        Seconds after which waiting for a silent rank becomes an error.

    Raises
    ------
    InputError
        On every rank: several processes were started, but they cannot meet.
    """
    launch = launched()
    if launch is None or launch.size == 1:
        return rc.Ring(timeout=timeout)
    if importlib.util.find_spec("mpi4py") is None:
        raise InputError(
            f"{launch.launcher} has started {launch.size} processes, which need mpi4py to meet. It is not "
            "installed. Run: pip install 'ringcore[mpi]'"
        )
    try:
        return rc.Ring(registry.world_transport(timeout), timeout=timeout)
    except (ImportError, RuntimeError) as error:  # no MPI library, or that of another launcher
        raise InputError(str(error)) from error
