"""Where all ranks of a ring come together outside the library's own calls, such as at the end of a test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ringcore.errors import PeerFailed, RingError

if TYPE_CHECKING:
    from ringcore.ring import Ring

VERDICT = "its verdict on"
"""How the name of a meeting begins at which a test's body is judged."""


class Come(NamedTuple):
    """A rank that has come to a meeting: to which, and what it has to say there."""

    place: str
    note: Any


def meet(ring: Ring, place: str, note: Any) -> list[Come]:
    """What every rank has to say, once all have come to some meeting. Collective.

    A rank that is at one of ringcore's calls instead, because this one has left the body of a test early,
    does not keep the others waiting: its call ends with the error of calls that differ between ranks, and
    it comes next.

    Parameters
    ----------
    ring : Ring
    place : str
        What this is about, as in messages. Whether all are at the same place is for the caller to judge.
    note : object
        Goes as JSON.

    Raises
    ------
    RingError
        If the ring is broken, or a rank does not come within its ``timeout``.

    Examples
    --------
    >>> import ringcore as rc
    >>> rc.run_ranks(2, lambda ring: [come.note for come in meet(ring, "lunch", ring.rank)])
    [[0, 1], [0, 1]]
    """
    message = json.dumps({"call": place, "note": note}).encode()
    while True:
        with ring.exclusive(place):
            everybody = ring.transport.allgather_bytes(message, ring.timeout)
        come = [found for found in map(_opened, everybody) if found is not None]
        if len(come) == ring.size:
            return come


def check_places(come: Sequence[Come]) -> None:
    """All ranks have come to the same meeting.

    Raises
    ------
    RingError
        On every rank, if not.
    """
    for rank, (place, _) in enumerate(come):
        if place != come[0].place:
            raise RingError(
                f"all ranks must run the same tests. Rank 0 is at {come[0].place}, rank {rank} at {place}."
            )


def is_consequence(error: BaseException | None) -> bool:
    """Whether an error only says that another rank has failed, or left early."""
    return isinstance(error, PeerFailed) or (isinstance(error, ValueError) and VERDICT in str(error))


def _opened(message: bytes) -> Come | None:
    """None for what a rank says that is at one of ringcore's calls."""
    try:
        read = json.loads(message)
        return Come(read["call"], read["note"])
    except (ValueError, TypeError, KeyError):
        return None
