"""Exceptions of ringcore's own; everything else is ValueError or TypeError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class RingError(RuntimeError):
    """Something went wrong between ranks."""


class PeerTimeout(RingError):
    """A rank waited longer than ``timeout`` for another one.

    Attributes
    ----------
    peer : int
        The rank waited for: the last one of the chain where that one waits for another. In a ring that was
        split off, its number in the whole; -1 if nothing tells who it is.
    """

    def __init__(self, message: str, peer: int) -> None:
        super().__init__(message)
        self.peer = peer

    def __reduce__(self) -> tuple[type[PeerTimeout], tuple[str, int]]:
        return type(self), (str(self), self.peer)


class PeerFailed(RingError):
    """Another rank has failed, so that this one cannot finish; the cause is raised there.

    Attributes
    ----------
    lost : bool
        Whether a rank is gone for good, so that MPI could not even be ended in an orderly way.
    """

    lost = False


class Awaited(NamedTuple):
    """What is known of a rank that is waited for.

    Attributes
    ----------
    name : str
        As "rank 3 of 8".
    status : str or None
        What it was last known to be at; None if it has told nothing.
    answers : bool
        Whether it still says what it does.
    """

    name: str
    status: str | None
    answers: bool


def waited_in_vain(me: str, status: str, timeout: float, chain: Sequence[Awaited], peer: int) -> PeerTimeout:
    """The error of a rank that has waited too long: for whom, at what, and what is known of those.

    Parameters
    ----------
    me, status : str
        This rank, and what it is at.
    timeout : float
        Seconds.
    chain : sequence of Awaited
        The rank waited for, the one that this one waits for, and so on.
    peer : int
        The number of the chain's last rank.

    Examples
    --------
    >>> chain = [Awaited("rank 1 of 4", "attention, hop 2 of 3", True), Awaited("rank 2 of 4", None, False)]
    >>> print(waited_in_vain("rank 0 of 4", "attention, hop 2 of 3", 5.0, chain, peer=2))
    rank 0 of 4 has waited 5 s (attention, hop 2 of 3) for rank 1 of 4 (attention, hop 2 of 3), which waits
    for rank 2 of 4 (nothing known of it), which does not answer. That rank has died, hangs, or did not make
    this call; a slow one needs a larger timeout: Ring(..., timeout=seconds).
    """
    links = ", which waits for ".join(
        f"{rank.name} ({rank.status or 'nothing known of it'})" for rank in chain
    )
    if chain[-1].answers:
        end = (
            "which answers but gets nowhere. Ranks that wait for each other have made different calls: look "
            "for one that depends on the rank."
        )
    else:
        end = (
            "which does not answer. That rank has died, hangs, or did not make this call; a slow one needs a "
            "larger timeout: Ring(..., timeout=seconds)."
        )
    return PeerTimeout(f"{me} has waited {timeout:g} s ({status}) for {links}, {end}", peer)
