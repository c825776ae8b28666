"""The transport over MPI: non-blocking sends and receives of bytes, polled by the thread that calls."""

from __future__ import annotations

import json
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from ringcore.errors import PeerFailed, RingError
from ringcore.protocols import Recv, Send, Traffic
from ringcore_mpi.exchange import MpiExchange
from ringcore_mpi.gathering import Gathering
from ringcore_mpi.office import Office
from ringcore_mpi.pause import Pause
from ringcore_mpi.post import Post
from ringcore_mpi.shared import show

NOTES, VITALS = 2**14, 2**14 + 1
"""Tags of control letters; array messages have smaller ones. MPI guarantees tags up to 2^15 - 1."""
_CLOSING_SECONDS = 60.0
_WORTH_SHARING = 4 << 20  # bytes: two comparisons take as long as such messages


class MpiTransport:
    """One rank of an MPI communicator; see `ringcore.protocols.Transport`.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        A communicator of its own, errors returned: nobody else sends messages in it.
    cores : int or None
        How many cores this rank may keep busy.
    nodes : sequence of int, optional
        Each rank's node; by default each has one of its own.
    office : Office, optional
        That of the communicator which this one was split off.
    members : sequence of int, optional
        The ranks' numbers there.
    group : str
        A name that all its ranks have for the group, and no other group of the office has.

    Notes
    -----
    Data moves only while `MpiExchange.test` or ``wait``, or another call of this rank, polls. It is made to
    be used by one thread at a time; with MPI_THREAD_FUNNELED, by the main thread.
    """

    where = "host"

    def __init__(
        self,
        comm: MPI.Intracomm,
        cores: int | None = None,
        office: Office | None = None,
        members: Sequence[int] | None = None,
        group: str = "all",
        nodes: Sequence[int] | None = None,
    ) -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.cores = cores
        self.nodes = tuple(range(self.size) if nodes is None else nodes)
        self.shares_from: int | None = _WORTH_SHARING
        self.traffic = Traffic()
        self._office = office or Office(comm, VITALS)
        self.needs_polling = self._office.vitals.size > 1  # a part of one rank still answers for the whole
        self._is_whole = office is None
        self._members = tuple(range(self.size) if members is None else members)
        self._group = group
        self._splits = 0
        self._notes = Post(comm, NOTES)
        self._main_thread_only = MPI.Query_thread() == MPI.THREAD_FUNNELED
        self.lock = self._office.lock

    def __repr__(self) -> str:
        return f"<MpiTransport rank {self.rank} of {self.size}>"

    @property
    def status(self) -> str:
        """What this rank is at; told to those who wait for it."""
        return self._office.vitals.status

    @status.setter
    def status(self, status: str) -> None:
        self._office.vitals.status = status

    def exchange(self, sends: Sequence[Send], recvs: Sequence[Recv]) -> MpiExchange:
        """Post all receives, then all sends.

        Raises
        ------
        ValueError
            If a buffer is not a flat contiguous uint8 array in host memory (writable, to receive), or a
            rank is outside the group.
        RingError
            If the ring has failed before, or it is not this thread's turn to use MPI.
        """
        self._check_usable()
        sends = [s._replace(tag=s.tag % NOTES) for s in sends]
        recvs = [r._replace(tag=r.tag % NOTES) for r in recvs]
        for send in sends:
            self._check(send.buffer, send.to, writes=False)
        for recv in recvs:
            self._check(recv.buffer, recv.source, writes=True)
        exchange = MpiExchange(self, sends, recvs)
        if sends or recvs:  # else nothing ever lands
            self._office.in_flight.add(exchange)  # first: an exception while posting must not lose buffers
        exchange.post(sends, recvs)
        for send in sends:
            self.traffic.count(send.to, int(send.buffer.shape[0]))
        return exchange

    def landed(self, exchange: MpiExchange) -> None:
        """All messages of an exchange are complete: its buffers may go."""
        self._office.in_flight.discard(exchange)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """While it is open this rank says, when asked, that it computes."""
        self._office.vitals.computing = True
        try:
            yield
        finally:
            self._office.vitals.computing = False

    def allgather_bytes(self, data: bytes, timeout: float) -> list[bytes]:
        """Everybody's ``data`` in rank order. Collective; counted as ``traffic.control_bytes``.

        Raises
        ------
        PeerTimeout
            If a rank is silent for ``timeout`` seconds; ``peer`` names it.
        PeerFailed
            If a rank has given up.
        RingError
            If the ranks are out of step.
        """
        self._check_usable()
        begun = self._office.vitals.comparisons
        number = begun.get(self._group, 0)
        begun[self._group] = number + 1
        self.traffic.control_bytes += len(data) * (self.size - 1)
        gathering = Gathering(self._notes, self.rank, self.size, number, data)
        if gathering.pending() is not None:
            self.wait_for(gathering.pending, timeout)
        return gathering.notes()

    def split(self, color: int, key: int, timeout: float) -> MpiTransport:
        """The group of the ranks that gave the same color, ordered by key, then rank. Collective.

        It has a communicator of its own, which `close` frees.
        """
        mine = struct.pack("<qq", operator.index(color), operator.index(key))
        answers = [struct.unpack("<qq", note) for note in self.allgather_bytes(mine, timeout)]
        ranks = [rank for _, rank in sorted((k, rank) for rank, (c, k) in enumerate(answers) if c == color)]
        colors = sorted({c for c, _ in answers})  # MPI's may not be negative
        # All are here, so that it returns at once.
        comm = cast(MPI.Intracomm, self.comm.Split(colors.index(color), ranks.index(self.rank)))
        self._splits += 1
        return self.part(comm, ranks, f"split {self._splits}, color {color}")

    def part(self, comm: MPI.Intracomm, ranks: Sequence[int], name: str) -> MpiTransport:
        """The transport of a communicator of some of these ranks; all of them give it the same name."""
        members = [self._members[rank] for rank in ranks]
        nodes = [self.nodes[rank] for rank in ranks]
        part = MpiTransport(comm, self.cores, self._office, members, f"{self._group}, {name}", nodes)
        part.shares_from = self.shares_from
        return part

    def publish(self, buffer: Any, timeout: float) -> dict[int, Any] | None:
        """Show a copy of a buffer to this node's ranks; see `ringcore.protocols.SharesMemory`. Collective."""
        shown = show(buffer, self.rank, self.nodes, lambda note: self.allgather_bytes(note, timeout))
        if shown is None:  # nor will it be possible next time
            self.shares_from = None
        return shown

    def give_up(self, error: BaseException) -> None:
        """Tell all others, once, that this rank cannot go on; the ring is of no use afterwards."""
        if self.comm != MPI.COMM_NULL and (not self._main_thread_only or MPI.Is_thread_main()):
            self._office.give_up(error)

    def close(self) -> None:
        """Free the communicator. Collective.

        Not after a failure: what is under way in it would arrive in the next one, which gets its number.
        """
        if self.comm == MPI.COMM_NULL or MPI.Is_finalized() or self._office.vitals.broken is not None:
            return
        if self._is_whole:
            self._empty()
            self._office.close()
        self._office.vitals.comparisons.pop(self._group, None)
        self.comm.Free()

    def _empty(self) -> None:
        """Take in all letters that are still under way, for the same reason."""
        note = json.dumps({"call": "the end of the ring"}).encode()  # for who is still in `agree`
        self.allgather_bytes(note, _CLOSING_SECONDS)  # nobody is in another call any more
        self._office.vitals.muted = True  # so that no letter is sent after it has been counted
        counts = [json.loads(n) for n in self.allgather_bytes(self._office.letters_sent(), _CLOSING_SECONDS)]
        self.wait_for(
            lambda: self._office.expects({rank: sent[self.rank] for rank, sent in enumerate(counts)}),
            _CLOSING_SECONDS,
        )

    def listen(self) -> None:
        """Answer who asks.

        Raises
        ------
        PeerTimeout, PeerFailed
            If a rank has given up.
        """
        self._office.listen()

    def wait_for(self, pending: Callable[[], int | None], timeout: float, for_data: bool = False) -> None:
        """Poll until ``pending``, which names a rank still waited for, says None."""
        vitals, pause = self._office.vitals, Pause()
        vitals.begin(timeout, self._group)
        try:
            while (peer := pending()) is not None:
                self._office.listen()
                vitals.awaits(self._members[peer], for_data)
                pause()
        except MPI.Exception as error:
            lost = PeerFailed(
                f"MPI has failed on rank {self.rank} of {self.size}: {error.Get_error_string()}."
            )
            lost.lost = True
            self._office.give_up(lost)
            raise lost from error
        except RingError as error:
            self._office.give_up(error)
            raise
        finally:
            vitals.end()

    def _check_usable(self) -> None:
        if self._main_thread_only and not MPI.Is_thread_main():
            raise RingError(
                "only the main thread may use MPI, which was initialised with MPI_THREAD_FUNNELED. Call from "
                "the main thread, or, before importing mpi4py.MPI, set mpi4py.rc.thread_level = 'multiple'."
            )
        self._office.check()
        if self.comm == MPI.COMM_NULL:
            raise RingError("a ring's communicator must exist. It has been freed. Make another Ring(comm).")
        self._office.listen()

    def _check(self, buffer: Any, peer: int, *, writes: bool) -> None:
        if not (isinstance(buffer, np.ndarray) and buffer.dtype == np.uint8 and buffer.ndim == 1):
            got = f"{type(buffer).__name__} {getattr(buffer, 'dtype', '')} {getattr(buffer, 'shape', '')}"
            raise ValueError(f"buffer must be a flat uint8 NumPy array. Got {got.strip()}. Pack arrays.")
        if not buffer.flags.c_contiguous or (writes and not buffer.flags.writeable):
            raise ValueError(
                "buffer must be contiguous, and writable to receive into. Got strides "
                f"{buffer.strides}, writable {buffer.flags.writeable}. Make a new array."
            )
        if not 0 <= peer < self.size:
            raise ValueError(f"rank must be in [0, {self.size}). Got {peer}.")
