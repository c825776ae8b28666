"""A transport between threads: the sender's bytes are copied straight into the receiver's buffer."""

from __future__ import annotations

import operator
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ringcore.errors import Awaited, RingError, waited_in_vain
from ringcore.protocols import Recv, Send, Traffic
from ringcore_threads.world import End, Group, Pair, World


class ThreadExchange:
    """Messages in flight between threads; see `ringcore.protocols.Exchange`."""

    def __init__(self, transport: ThreadTransport, ends: list[End]) -> None:
        self._transport = transport
        self._ends = ends

    def test(self) -> bool:
        """Whether all messages are complete. Messages move without it.

        Raises
        ------
        PeerFailed
            If a message can no longer complete.
        RingError
            If a send met a receive of another length.
        """
        with self._transport._group.world.lock:
            return self._pending() is None

    def wait(self, timeout: float) -> None:
        """Sleep until all messages are complete.

        Raises
        ------
        PeerTimeout
            After ``timeout`` seconds; ``peer`` is the first rank still waited for.
        PeerFailed
            At once, if a rank of the process has failed or the peer has returned from its function.
        RingError
            If a send met a receive of another length.
        """
        self._transport._sleep(self._pending, timeout)

    def _pending(self) -> tuple[int, str] | None:
        """Whom to wait for and what for; None when complete. Raises when waiting is in vain."""
        transport = self._transport
        pending = [end for end in self._ends if not end.done]
        for end in self._ends:
            if end.error is not None:
                raise end.error
        for end in pending:
            # A matched message is being copied: it completes, whatever has become of its peer.
            if not end.matched:
                transport._group.world.check(transport._group, transport.rank, end.peer, str(end))
        self._ends = pending
        return (pending[0].peer, str(pending[0])) if pending else None


class ThreadTransport:
    """One rank of a group of threads; see `ringcore.protocols.Transport`.

    A message is a rendezvous: nothing is buffered. Whichever side posts second copies the sender's
    buffer into the receiver's inside its own call of `exchange`, so memory never holds a third copy,
    and a message that both sides have posted completes although neither waits for it.

    What a rank has sent before it failed or returned still arrives: only a rank that would have to
    wait gets `PeerFailed`. Hence ranks that raise the same error together all see that error.

    Parameters
    ----------
    group : Group
        Made by `solo`, `run_ranks` or `split`.
    rank : int
        This rank's number in the group.

    Examples
    --------
    >>> import numpy as np
    >>> from ringcore_threads import solo
    >>> from ringcore.protocols import Recv, Send
    >>> transport = solo()
    >>> here, there = np.arange(3, dtype=np.uint8), np.zeros(3, dtype=np.uint8)
    >>> transport.exchange([Send(here, 0, tag=5)], [Recv(there, 0, tag=5)]).wait(timeout=1.0)
    >>> there.tolist(), transport.traffic.bytes
    ([0, 1, 2], 3)
    """

    needs_polling = False
    where = "host"
    cores = None  # ranks of one process share its pool of threads

    def __init__(self, group: Group, rank: int) -> None:
        self._group = group
        self.rank = rank
        self.size = group.size
        self.traffic = Traffic()
        self.lock = threading.RLock()
        self._gathers = 0
        self._splits = 0

    def __repr__(self) -> str:
        return f"<ThreadTransport {self._group.name(self.rank)}>"

    @property
    def status(self) -> str:
        """What this rank is at; others name it in their messages."""
        return self._group.world.statuses[self._group.members[self.rank]]

    @status.setter
    def status(self, status: str) -> None:
        self._group.world.statuses[self._group.members[self.rank]] = status

    def give_up(self, error: BaseException) -> None:
        """Nothing: who waits hears of it when this rank's function ends."""

    def close(self) -> None:
        """Nothing: a group holds no more than its ranks do."""

    def exchange(self, sends: Sequence[Send], recvs: Sequence[Recv]) -> ThreadExchange:
        """Post receives, then sends, and copy those whose other side is there already.

        Raises
        ------
        ValueError
            If a buffer is not a flat contiguous uint8 NumPy array (writable, to receive), or a rank is
            outside the group.
        """
        ends = [self._end("receive", *recv) for recv in recvs] + [self._end("send", *send) for send in sends]
        with self._group.world.lock:
            for send in sends:
                self.traffic.count(send.to, int(send.buffer.shape[0]))
            pairs = [pair for end in ends if (pair := self._group.post(end)) is not None]
        for pair in pairs:
            self._copy(pair)
        return ThreadExchange(self, ends)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """While it is open this rank computes: others that wait for it do not take it for dead."""
        world, me = self._group.world, self._group.members[self.rank]
        world.compute(me, True)
        try:
            yield
        finally:
            world.compute(me, False)

    def allgather_bytes(self, data: bytes, timeout: float) -> list[bytes]:
        """Everybody's ``data`` in rank order. Collective; counted as ``traffic.control_bytes``.

        Raises
        ------
        PeerTimeout
            After ``timeout`` seconds; ``peer`` is the first rank that has not called.
        PeerFailed
            If a rank of the process has failed, or one of the group has returned from its function.
        """
        number = self._gathers
        self._gathers += 1
        group, world = self._group, self._group.world
        with world.lock:
            board = group.board(number)
            board.notes[self.rank] = bytes(data)
            self.traffic.control_bytes += len(data) * (self.size - 1)
            if board.missing() is None:
                for rank in range(self.size):
                    group.wake(rank)

        def pending() -> tuple[int, str] | None:
            missing = board.missing()
            if missing is None:
                return None
            what = f"allgather number {number}"
            world.check(group, self.rank, missing, what)
            return missing, what

        self._sleep(pending, timeout)
        with world.lock:
            return group.read(number)

    def split(self, color: int, key: int, timeout: float) -> ThreadTransport:
        """The group of the ranks that gave the same color, ordered by key, then rank. Collective.

        The new group has mailboxes and traffic of its own; a rank that fails ends all groups.
        """
        number = self._splits
        self._splits += 1
        mine = struct.pack("<qq", operator.index(color), operator.index(key))
        answers = [struct.unpack("<qq", note) for note in self.allgather_bytes(mine, timeout)]
        ranks = [rank for _, rank in sorted((k, rank) for rank, (c, k) in enumerate(answers) if c == color)]
        members = tuple(self._group.members[rank] for rank in ranks)
        return ThreadTransport(self._group.child(number, color, members), ranks.index(self.rank))

    def _end(self, kind: str, buffer: Any, peer: int, tag: int) -> End:
        if not (isinstance(buffer, np.ndarray) and buffer.dtype == np.uint8 and buffer.ndim == 1):
            got = f"{type(buffer).__name__} {getattr(buffer, 'dtype', '')} {getattr(buffer, 'shape', '')}"
            raise ValueError(f"buffer must be a flat uint8 NumPy array. Got {got.strip()}. Pack arrays.")
        if not buffer.flags.c_contiguous or (kind == "receive" and not buffer.flags.writeable):
            raise ValueError(
                f"buffer must be contiguous, and writable to receive into. Got strides {buffer.strides},"
                f" writable {buffer.flags.writeable} for a {kind}. Make a new array."
            )
        if not 0 <= peer < self.size:
            raise ValueError(f"rank must be in [0, {self.size}). Got {peer} for a {kind}.")
        return End(self._group, kind, buffer, self.rank, peer, tag)

    def _copy(self, pair: Pair) -> None:
        """Move the bytes of a matched pair; the lock is not held, so pairs are copied in parallel."""
        error: Exception | None = None
        try:
            if pair.send.nbytes == pair.recv.nbytes:
                np.copyto(pair.recv.buffer, pair.send.buffer)
            else:
                error = RingError(
                    f"a receive must have the length of its send. Got a {pair.send} from "
                    f"{self._group.name(pair.send.rank)} for a {pair.recv} on "
                    f"{self._group.name(pair.recv.rank)}."
                    " Give all ranks the same layout, shapes and dtypes."
                )
        except BaseException:
            error = RingError("copying the message was interrupted")
            raise
        finally:
            with self._group.world.lock:
                pair.send.settle(error)
                pair.recv.settle(error)

    def _sleep(self, pending: Callable[[], tuple[int, str] | None], timeout: float) -> None:
        """Sleep until ``pending`` (called with the lock held) says None."""
        world, members = self._group.world, self._group.members
        me = members[self.rank]
        until = time.monotonic() + timeout
        with world.lock:
            try:
                while (awaited := pending()) is not None:
                    peer, _ = awaited
                    world.wait(me, members[peer])
                    until = max(until, world.last_alive(members[peer]) + timeout)  # slow is not dead
                    left = until - time.monotonic()
                    if left <= 0:
                        known = Awaited(self._group.name(peer), world.statuses[members[peer]], False)
                        raise waited_in_vain(self._group.name(self.rank), self.status, timeout, [known], peer)
                    world.conditions[me].wait(min(left, threading.TIMEOUT_MAX))
            finally:
                world.wait(me, None)


def thread_group(size: int) -> list[ThreadTransport]:
    """The transports of ``size`` new ranks; each is for a thread of its own.

    `run_ranks` is the way to run them; this is for those who bring their own threads.
    """
    group = Group(World(size), tuple(range(size)))
    return [ThreadTransport(group, rank) for rank in range(size)]


def solo() -> ThreadTransport:
    """A transport of one rank, which talks to itself only."""
    return thread_group(1)[0]
