"""Ranks as processes of an MPI job: ``ringcore.Ring(MPI.COMM_WORLD)``.

Importing this package does not load MPI; using it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringcore_mpi.transport import MpiTransport

__all__ = ["of_communicator", "world"]


def of_communicator(comm: Any, timeout: float = 600.0) -> MpiTransport:
    """The transport of an mpi4py communicator: made once, kept on it. Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    timeout : float
        Seconds to wait for the communicator's other ranks.

    Raises
    ------
    TypeError, RingError, PeerTimeout
        See `ringcore_mpi.attach.attached`.
    """
    from ringcore_mpi.attach import attached

    return attached(comm, timeout)


def world(timeout: float = 600.0) -> MpiTransport:
    """The transport of all processes that were launched together: of ``MPI.COMM_WORLD``. Collective.

    Raises
    ------
    ImportError, RuntimeError
        If mpi4py, or an MPI library for it, is missing.
    RingError, PeerTimeout
        As for `of_communicator`.
    """
    from mpi4py import MPI

    return of_communicator(MPI.COMM_WORLD, timeout)
