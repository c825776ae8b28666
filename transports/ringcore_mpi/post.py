"""Small messages of any length between ranks, never blocking."""

from __future__ import annotations

from collections.abc import Iterator

from mpi4py import MPI


class Post:
    """Letters: bytes whose length the receiver does not know, sent and taken in without waiting.

    A letter's bytes must stay where they are until MPI has sent them: they are kept here.
    """

    def __init__(self, comm: MPI.Intracomm, tag: int) -> None:
        self._comm = comm
        self._tag = tag
        self._leaving: list[tuple[MPI.Request, int, bytes]] = []
        self._coming: dict[int, tuple[MPI.Request, bytearray]] = {}

    def send(self, letter: bytes, to: int) -> None:
        """Post a letter."""
        self.unsent()  # those that have gone need not be kept
        self._leaving.append((self._comm.Isend([letter, MPI.BYTE], to, self._tag), to, letter))

    def unsent(self) -> int | None:
        """A rank that has not taken its letter yet; None when all have."""
        self._leaving = [entry for entry in self._leaving if not entry[0].Test()]
        return self._leaving[0][1] if self._leaving else None

    def take(self, source: int) -> bytes | None:
        """The next letter from a rank, if it is here."""
        if source not in self._coming:
            status = MPI.Status()
            message = self._comm.Improbe(source, self._tag, status)
            if message is None:
                return None
            letter = bytearray(status.Get_count(MPI.BYTE))
            self._coming[source] = message.Irecv([letter, MPI.BYTE]), letter
        request, letter = self._coming[source]
        if not request.Test():
            return None
        del self._coming[source]
        return bytes(letter)

    def take_all(self) -> Iterator[tuple[int, bytes]]:
        """All letters that are here, each with the rank that has sent it."""
        status = MPI.Status()
        sources = list(self._coming)  # what is still arriving is no longer seen by Iprobe
        while sources or self._comm.Iprobe(MPI.ANY_SOURCE, self._tag, status):
            source = sources.pop() if sources else status.Get_source()
            letter = self.take(source)
            if letter is not None:
                yield source, letter
            elif not sources and status.Get_source() == source:  # a long one; the next look goes on with it
                return
