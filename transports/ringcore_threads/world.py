"""What ranks that are threads of one process share: a lock, wake-ups, mailboxes and their fate."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from ringcore.errors import PeerFailed


class End:
    """One side of a message: a posted send or a posted receive."""

    __slots__ = ("buffer", "done", "error", "group", "kind", "matched", "nbytes", "peer", "rank", "tag")

    def __init__(self, group: Group, kind: str, buffer: Any, rank: int, peer: int, tag: int) -> None:
        self.group = group
        self.kind = kind
        self.buffer = buffer
        self.nbytes = int(buffer.shape[0])
        self.rank = rank
        self.peer = peer
        self.tag = tag
        self.matched = False
        self.done = False
        self.error: Exception | None = None

    def settle(self, error: Exception | None = None) -> None:
        """Complete this end and wake its rank; the world's lock is held."""
        self.buffer = None  # the owner may keep the exchange: do not keep its memory alive
        self.error = error
        self.matched = self.done = True
        self.group.wake(self.rank)

    def __str__(self) -> str:
        return f"{self.kind} of {self.nbytes} bytes, tag {self.tag}"


class Pair(NamedTuple):
    """A send and the receive that takes it."""

    send: End
    recv: End


class World:
    """The ranks of one `run_ranks` call and of all groups split from it.

    One lock guards all bookkeeping, which takes microseconds; messages are copied outside it. Each
    rank has a condition of its own on that lock, so that a message wakes whom it concerns only.
    """

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self.conditions = [threading.Condition(self.lock) for _ in range(size)]
        self.statuses = ["between calls"] * size
        self._failure: str | None = None
        self._left: set[int] = set()
        self._computed: dict[int, float] = {}  # when a rank has last ended to compute; inf while it does
        self._awaits: dict[int, int] = {}

    def fail(self, reason: str) -> bool:
        """End all ranks: whoever would have to wait gets `PeerFailed`. True if this was the first reason."""
        with self.lock:
            first = self._failure is None
            if first:
                self._failure = reason
            self._wake_all()
        return first

    def leave(self, rank: int) -> None:
        """Rank has returned: whoever waits for it gets `PeerFailed`, all others go on."""
        with self.lock:
            self._left.add(rank)
            self._wake_all()

    def compute(self, rank: int, begins: bool) -> None:
        """Rank begins, or ends, to compute."""
        with self.lock:
            self._computed[rank] = math.inf if begins else time.monotonic()

    def wait(self, rank: int, peer: int | None) -> None:
        """Rank waits for a peer, or no longer for anybody; the lock is held."""
        if peer is None:
            self._awaits.pop(rank, None)
        else:
            self._awaits[rank] = peer

    def last_alive(self, rank: int) -> float:
        """When rank, or a rank that it waits for, directly or not, was last known to be at work.

        A time of the monotonic clock: now if one of them computes, -inf if that is not known. The lock
        is held.
        """
        latest = -math.inf
        for _ in self.conditions:
            latest = max(latest, self._computed.get(rank, -math.inf))
            if latest == math.inf or rank not in self._awaits:
                break
            rank = self._awaits[rank]
        return min(latest, time.monotonic())

    def check(self, group: Group, rank: int, peer: int, what: str) -> None:
        """Raise if ``rank`` would wait in vain for ``peer``; the lock is held."""
        if self._failure is not None:
            raise PeerFailed(
                f"{group.name(rank)} cannot finish ({what}): {self._failure}. The cause is raised there."
            )
        if group.members[peer] in self._left:
            raise PeerFailed(
                f"every rank must make the same collective calls. {group.name(peer).capitalize()} has "
                f"returned while {group.name(rank)} still waits for it ({what}). Look for a call, or an "
                "early return, that depends on the rank."
            )

    def _wake_all(self) -> None:
        for condition in self.conditions:
            condition.notify_all()


class Board:
    """One `allgather_bytes` under way."""

    def __init__(self, size: int) -> None:
        self.notes: list[bytes | None] = [None] * size
        self.readers = size

    def missing(self) -> int | None:
        """The first rank that has not written yet."""
        return next((rank for rank, note in enumerate(self.notes) if note is None), None)


class Group:
    """Mailboxes of some ranks of a world; ``members`` are their numbers in the world."""

    def __init__(self, world: World, members: tuple[int, ...]) -> None:
        self.world = world
        self.members = members
        self._sends: dict[tuple[int, int, int], deque[End]] = {}
        self._recvs: dict[tuple[int, int, int], deque[End]] = {}
        self._boards: dict[int, Board] = {}
        self._children: dict[tuple[int, int], Group] = {}
        self._adopted = 0

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.members)

    def name(self, rank: int) -> str:
        """How messages call a rank: in a group that was split off, with its number in the whole, too."""
        whole = len(self.world.conditions)
        if self.members == tuple(range(whole)):
            return f"rank {rank} of {whole}"
        return f"rank {rank} of {self.size} (rank {self.members[rank]} of all {whole})"

    def wake(self, rank: int) -> None:
        """Let a waiting rank look again; the world's lock is held."""
        self.world.conditions[self.members[rank]].notify_all()

    def post(self, end: End) -> Pair | None:
        """Match an end with the oldest waiting counterpart, or queue it; the world's lock is held."""
        sending = end.kind == "send"
        key = (end.rank, end.peer, end.tag) if sending else (end.peer, end.rank, end.tag)
        mine, theirs = (self._sends, self._recvs) if sending else (self._recvs, self._sends)
        waiting = theirs.get(key)
        if not waiting:
            mine.setdefault(key, deque()).append(end)
            return None
        other = waiting.popleft()
        if not waiting:
            del theirs[key]
        end.matched = other.matched = True
        return Pair(end, other) if sending else Pair(other, end)

    def board(self, number: int) -> Board:
        """The board of this group's ``number``-th allgather; the world's lock is held."""
        return self._boards.setdefault(number, Board(self.size))

    def read(self, number: int) -> list[bytes]:
        """A full board's notes; the last reader takes it down; the world's lock is held."""
        board = self._boards[number]
        board.readers -= 1
        if board.readers == 0:
            del self._boards[number]
        return [note for note in board.notes if note is not None]

    def child(self, number: int, color: int, members: tuple[int, ...]) -> Group:
        """The same new group for all ranks that split with this color the ``number``-th time."""
        with self.world.lock:
            group = self._children.setdefault((number, color), Group(self.world, members))
            group._adopted += 1
            if group._adopted == len(members):
                del self._children[number, color]
        return group
