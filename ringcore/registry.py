"""Array type -> backend, communicator type -> transport.

Built-in names come from a table, so that nothing is scanned; a name that is not in it is looked up in
the entry-point groups ``ringcore.backends`` and ``ringcore.transports``. Packages load on first use.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

from ringcore.protocols import Array, Backend, Transport

_BACKENDS = {"numpy": "ringcore_numpy:backend"}
_TRANSPORTS = {
    "NoneType": "ringcore_threads:solo",
    "threads": "ringcore_threads:run_ranks",
    "mpi4py": "ringcore_mpi:of_communicator",
    "world": "ringcore_mpi:world",
}


def backend_of(array: Array) -> Backend:
    """The backend for an array's library: built in, plugged in, or the generic one."""
    return _backend(_root(array))


def transport_of(comm: Any, timeout: float = 600.0) -> Transport:
    """The transport for a communicator; a transport stands for itself, None for one rank alone. Collective.

    Parameters
    ----------
    comm : communicator, Transport or None
    timeout : float
        Seconds to wait for the other ranks of the communicator.

    Raises
    ------
    TypeError
        If nothing is known for its type.
    """
    if isinstance(comm, Transport):
        return comm
    name = "NoneType" if comm is None else _root(comm)
    make = _load("ringcore.transports", _TRANSPORTS, name)
    if make is None:
        raise TypeError(
            "comm must be a communicator that ringcore has a transport for. "
            f"Got {type(comm).__module__}.{type(comm).__qualname__}. Use Ring() for one rank, "
            "ringcore.run_ranks(P, fn) for threads, or install a package with a "
            f"'ringcore.transports' entry point named {name!r}."
        )
    return cast(Transport, make() if comm is None else make(comm, timeout))


def world_transport(timeout: float) -> Transport:
    """The transport of all processes that a launcher such as mpirun has started together. Collective."""
    return cast(Transport, _load("ringcore.transports", _TRANSPORTS, "world")(timeout))


def thread_runner() -> Any:
    """The function behind `ringcore.run_ranks`."""
    return _load("ringcore.transports", _TRANSPORTS, "threads")


@cache
def _backend(library: str) -> Backend:
    found = _load("ringcore.backends", _BACKENDS, library)
    if found is not None:
        return cast(Backend, found)
    from ringcore.block import GenericBackend

    return GenericBackend()


def _load(group: str, table: dict[str, str], name: str) -> Any:
    place = table.get(name)
    if place is not None:
        module, _, attribute = place.partition(":")
        return getattr(importlib.import_module(module), attribute)
    for entry in entry_points(group=group, name=name):
        return entry.load()
    return None


def _root(thing: Any) -> str:
    return type(thing).__module__.partition(".")[0]
