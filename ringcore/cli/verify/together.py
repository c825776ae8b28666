"""What the ranks of a run tell each other besides attention: who cannot go on, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import ringcore as rc
from ringcore.cli.errors import InputError

T = TypeVar("T")


def everywhere(ring: rc.Ring, action: Callable[[], T], same: Callable[[T], str] = lambda _: "") -> T:
    """Do something on every rank; if it cannot be done on one, none goes on. Collective.

    Parameters
    ----------
    ring : Ring
    action : callable
        May raise InputError.
    same : callable, optional
        What must be equal on all ranks, as a text for people.

    Raises
    ------
    InputError
        The same on every rank.

    Examples
    --------
    >>> import ringcore as rc
    >>> rc.run_ranks(2, everywhere, lambda: 7)
    [7, 7]
    """
    done: list[T] = []
    try:
        done.append(action())
        told = {"error": None, "same": same(done[0])}
    except InputError as error:
        told = {"error": str(error), "same": None}
    notes = [
        json.loads(note) for note in ring.transport.allgather_bytes(json.dumps(told).encode(), ring.timeout)
    ]
    errors = {note["error"] for note in notes}
    for rank, note in enumerate(notes):
        if note["error"] is not None:
            raise InputError(note["error"] + (f" (on rank {rank} of {ring.size})" if len(errors) > 1 else ""))
    for rank, note in enumerate(notes):
        if note["same"] != notes[0]["same"]:
            raise InputError(
                f"all ranks must do the same. Rank 0 has {notes[0]['same']}, rank {rank} {note['same']}. "
                "Start all of them with the same arguments, and install the same on all nodes."
            )
    return done[0]


def from_first(ring: rc.Ring, value: int) -> int:
    """Rank 0's number, on every rank. Collective."""
    return int(ring.transport.allgather_bytes(str(value).encode(), ring.timeout)[0])
