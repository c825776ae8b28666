"""From the caller's communicator to our transport: checked, duplicated once, kept on the communicator."""

from __future__ import annotations

import time
from typing import Any

from mpi4py import MPI

from ringcore.errors import PeerTimeout, RingError
from ringcore.launcher import claim, launched
from ringcore_mpi.cores import on_this_node
from ringcore_mpi.ending import abort_at_exit
from ringcore_mpi.transport import MpiTransport

_POLL_SECONDS = 0.0005


def attached(comm: Any, timeout: float) -> MpiTransport:
    """The transport that is kept on a communicator, made at the first call. Collective.

    The duplicate, in which our messages never meet the caller's, is freed with the communicator. MPI
    libraries have room for some 2,000 communicators: one for each call would soon exhaust it.

    Raises
    ------
    TypeError
        If it is no intracommunicator, or none any more.
    RingError
        If processes that were launched together do not share an MPI, or MPI allows no threads.
    PeerTimeout
        If not all ranks have come after ``timeout`` seconds.
    """
    _check(comm)
    found = comm.Get_attr(_KEY)
    if isinstance(found, MpiTransport):
        return found
    transport = MpiTransport(_duplicate(comm, timeout))
    transport.cores, transport.nodes = on_this_node(transport, timeout)
    comm.Set_attr(_KEY, transport)
    claim()
    return transport


def _free(comm: Any, key: int, transport: MpiTransport) -> None:
    if comm != MPI.COMM_WORLD:  # which ends in MPI_Finalize, where not all may come
        transport.close()


_KEY = MPI.Comm.Create_keyval(delete_fn=_free)


def _duplicate(comm: MPI.Intracomm, timeout: float) -> MPI.Intracomm:
    """A duplicate whose errors become exceptions. Collective, but without hanging."""
    duplicate, request = comm.Idup()
    until = time.monotonic() + timeout
    while not request.Test():
        if time.monotonic() > until:
            abort_at_exit()  # MPI_Finalize would wait for the duplicate
            raise PeerTimeout(
                f"all {comm.Get_size()} ranks of a communicator must make a ring of it. Rank "
                f"{comm.Get_rank()} has waited {timeout:g} s for others to call Ring(comm). Look for a call "
                "that depends on the rank.",
                peer=-1,
            )
        time.sleep(_POLL_SECONDS)
    duplicate.Set_errhandler(MPI.ERRORS_RETURN)
    return duplicate


def _check(comm: Any) -> None:
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        what = (
            "a freed or null communicator" if isinstance(comm, MPI.Comm) and not comm else type(comm).__name__
        )
        raise TypeError(
            f"comm must be an intracommunicator, such as MPI.COMM_WORLD. Got {what}. "
            "Of an intercommunicator, use comm.Merge()."
        )
    launch = launched()
    if launch is not None and launch.size > 1 and MPI.COMM_WORLD.Get_size() == 1 and not _spawned():
        library = MPI.Get_library_version().partition("\n")[0].strip(" \0")
        raise RingError(
            f"all processes of a run must meet in one MPI. Here {launch.launcher} has started {launch.size} "
            f"processes, of which each is alone: this is rank {launch.rank}. mpi4py has loaded {library}, "
            "which does not know that launcher. Use the mpirun that belongs to this MPI (mpirun --version "
            "tells whose it is), or build mpi4py against the other: "
            "pip install --force-reinstall --no-binary mpi4py mpi4py. "
            "`ringcore doctor` shows both."
        )
    level = MPI.Query_thread()
    if level == MPI.THREAD_SINGLE:
        raise RingError(
            "MPI must allow threads, as kernels have some: at least MPI_THREAD_FUNNELED. It was initialised "
            "with MPI_THREAD_SINGLE. Leave the initialisation to mpi4py, or set "
            "mpi4py.rc.thread_level = 'multiple' before importing mpi4py.MPI."
        )


def _spawned() -> bool:
    """Whether this process was started by MPI_Comm_spawn: its world is as large as was asked for."""
    return bool(MPI.Comm.Get_parent() != MPI.COMM_NULL)
