"""All processes that ``mpirun`` has started together: their ring, who speaks, how they end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import ringcore as rc
from ringcore import registry
from ringcore.cli.errors import InputError
from ringcore.launcher import launched

_GRACE_SECONDS = 2.0
_SHORT_GRACE_SECONDS = 1.0


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


def give_way() -> None:
    """Before an exit code other than 0: the launcher ends all ranks then, and rank 0 may still be speaking.

    Once MPI has started, its end waits for all ranks anyway.
    """
    if _mpi() is None:
        _wait_if_not_first(_SHORT_GRACE_SECONDS)


def leave(code: int) -> NoReturn:
    """End this process now, and all other ranks with it; what it wanted to say has been said.

    Kernels may still run in other threads, for which the ordinary end would wait; as that of MPI would for
    a rank that has gone.

    Parameters
    ----------
    code : int
        The exit code.

    Notes
    -----
    Rank 0 may have something to tell and files to see to: every other rank gives it time to come here first.
    """
    if _mpi() is not None:
        from ringcore_mpi.ending import abort

        abort(code, 0 if is_first() else _GRACE_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    give_way()
    os._exit(code)


def _mpi() -> Any:
    """mpi4py's MPI where it runs and other processes take part."""
    mpi = None if is_alone() else sys.modules.get("mpi4py.MPI")
    return mpi if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() else None


def _wait_if_not_first(seconds: float) -> None:
    if not is_first():
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(seconds)


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
