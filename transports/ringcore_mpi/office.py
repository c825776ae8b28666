"""What a communicator and those split off it share: who is alive, who has given up, what is under way."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from contextlib import suppress
from weakref import WeakSet

from mpi4py import MPI

from ringcore.errors import PeerFailed, PeerTimeout, RingError
from ringcore_mpi.ending import abort_at_exit
from ringcore_mpi.exchange import MpiExchange
from ringcore_mpi.post import Post
from ringcore_mpi.vitals import Letter, Vitals

_TELLING_SECONDS = 0.2

_OPEN: WeakSet[Office] = WeakSet()
"""Of this process: a rank that is busy in one communicator is alive for those who wait for it in another."""


class Office:
    """Letters about the ranks themselves, and what follows from them.

    Attributes
    ----------
    vitals : Vitals
    lock : RLock
        One thread at a time: letters are for all groups.
    in_flight : set of MpiExchange
        Keeps the buffers of messages under way, also of a call that an exception has ended: MPI may still
        write to them.
    """

    def __init__(self, comm: MPI.Intracomm, tag: int) -> None:
        self._post = Post(comm, tag)
        self.vitals = Vitals(comm.Get_rank(), comm.Get_size(), self._put)
        self.lock = threading.RLock()
        self.in_flight: set[MpiExchange] = set()
        self._sent = [0] * comm.Get_size()
        self._taken = [0] * comm.Get_size()
        self._pid = os.getpid()
        atexit.register(self._end)
        _OPEN.add(self)

    def listen(self) -> None:
        """Take in letters, and answer them; those of this process's other communicators, too.

        Raises
        ------
        PeerTimeout, PeerFailed
            If a rank of this communicator has given up.
        """
        self._take()
        if len(_OPEN) == 1:  # the usual case, and polled all the time
            return
        for other in [office for office in _OPEN if office is not self]:
            if other.lock.acquire(blocking=False):
                try:
                    with suppress(RingError):  # whoever uses it next is told
                        other._take()
                finally:
                    other.lock.release()

    def _take(self) -> None:
        for source, letter in self._post.take_all():
            self._taken[source] += 1
            try:
                self.vitals.receive(source, json.loads(letter))
            except RingError:
                if json.loads(letter)["fatal"]:
                    abort_at_exit()
                raise

    def letters_sent(self) -> bytes:
        """How many letters have gone to each rank."""
        return json.dumps(self._sent).encode()

    def expects(self, sent: dict[int, int]) -> int | None:
        """A rank whose letters have not all come, of so many that each has sent here; None if all have."""
        self._take()
        late = (rank for rank, count in sent.items() if self._taken[rank] < count)
        return next(late, self._post.unsent())

    def close(self) -> None:
        """The communicator is about to be freed.

        After a failure the office stays, with the buffers that MPI may still write to.
        """
        if self.vitals.broken is None:
            _OPEN.discard(self)
            atexit.unregister(self._end)

    def check(self) -> None:
        """Refuse a new message after a failure: old ones are still under way.

        Raises
        ------
        RingError
        """
        if self.vitals.broken is not None:
            raise RingError(
                f"a ring cannot be used after a failure. It was: {str(self.vitals.broken).rstrip('.')}. "
                "Make another one of a new communicator, Ring(comm.Dup()), if all ranks can still do that."
            )

    def give_up(self, error: BaseException) -> None:
        """Tell all others, once, that this rank cannot go on."""
        vitals = self.vitals
        if vitals.broken is not None:
            return
        text = f"{type(error).__name__} in {vitals.status}: {error}".rstrip(": ")
        text = str(error) if isinstance(error, RingError) else text
        vitals.broken = error if isinstance(error, RingError) else RingError(text)
        # A rank is gone: MPI's own end would wait for it.
        fatal = isinstance(error, PeerTimeout | MPI.Exception) or (
            isinstance(error, PeerFailed) and error.lost
        )
        if fatal:
            abort_at_exit()
        self._tell(vitals.failure(text, error.peer if isinstance(error, PeerTimeout) else None, fatal))

    def _tell(self, letter: Letter) -> None:
        for rank in range(self.vitals.size):
            if rank != self.vitals.rank:
                self._put(letter, rank)
        until = time.monotonic() + _TELLING_SECONDS
        while self._post.unsent() is not None and time.monotonic() < until:
            time.sleep(0.001)

    def _end(self) -> None:
        """A rank that ends by an exception tells those who may wait for it; a forked child has no say."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if isinstance(error, Exception) and os.getpid() == self._pid and not MPI.Is_finalized():
            self.vitals.status = "the end of the process"
            self.give_up(error)

    def _put(self, letter: Letter, to: int) -> None:
        self._sent[to] += 1
        self._post.send(json.dumps(letter).encode(), to)
