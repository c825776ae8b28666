"""Exceptions of ringcore's own; everything else is ValueError or TypeError."""

from __future__ import annotations


class RingError(RuntimeError):
    """Something went wrong between ranks."""


class PeerTimeout(RingError):
    """A rank waited longer than ``timeout`` for another one.

    Attributes
    ----------
    peer : int
        The rank waited for.
    """

    def __init__(self, message: str, peer: int) -> None:
        super().__init__(message)
        self.peer = peer

    def __reduce__(self) -> tuple[type[PeerTimeout], tuple[str, int]]:
        return type(self), (str(self), self.peer)


class PeerFailed(RingError):
    """Another rank has failed, so that this one cannot finish; the cause is raised there."""
