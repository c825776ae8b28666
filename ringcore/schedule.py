"""Who sends what to whom at which hop: data, computed alike on every rank.

One side travels: its *blocks* (read-only buffers) go one hop ahead of the compute, and where a block
collects sums (dK and dV, a partial, or dQ) these follow one hop behind and go straight home from the
last rank that adds to them. A block goes *round the ring*, from neighbour to neighbour as far as a
rank needs it, or *direct*, from its owner to each rank that needs it. At tick t rank r computes with
block (r - t) mod P, whichever way is taken.

Reference: H. Liu, M. Zaharia, P. Abbeel, *Ring Attention with Blockwise Transformers*, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

BLOCK, SUM = "block", "sum"
WAYS = ("ring", "direct")


class Message(NamedTuple):
    """One message of a tick: the block, or the sum for it, of rank ``block``, to or from ``peer``."""

    what: str
    block: int
    peer: int


@dataclass(frozen=True)
class Tick:
    """What one rank does at one hop: messages in flight while it computes with a block."""

    compute: int | None
    sends: tuple[Message, ...] = ()
    recvs: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Reach:
    """How far each block travels, arrays of shape (P,): for block b, counting hops from its owner.

    Attributes
    ----------
    first, last : array of int
        First and last hop >= 1 at which somebody needs it; 0 if it never leaves home.
    away : array of int
        How many other ranks need it.
    """

    first: np.ndarray
    last: np.ndarray
    away: np.ndarray

    @classmethod
    def of(cls, needs: np.ndarray) -> Reach:
        """From ``needs[rank, block]``, bool (P, P): the rank computes with this block."""
        P = needs.shape[0]
        rank, block = np.nonzero(needs)
        hop = (rank - block) % P
        block, hop = block[hop > 0], hop[hop > 0]
        first, last = np.full(P, P), np.zeros(P, np.int64)
        np.minimum.at(first, block, hop)
        np.maximum.at(last, block, hop)
        return cls(np.where(last > 0, first, 0), last, np.bincount(block, minlength=P))

    def traffic(self, blocks: np.ndarray, sums: np.ndarray | None, way: str) -> int:
        """Bytes that all ranks together send, from the bytes of each owner's block, and of its sum if any."""
        block_hops = self.last if way == "ring" else self.away
        sum_hops = np.where(self.last > 0, self.last - self.first + 1, 0) if way == "ring" else self.away
        return int((blocks * block_hops).sum()) + (0 if sums is None else int((sums * sum_hops).sum()))


def schedule(needs: np.ndarray, rank: int, way: str, *, with_sums: bool) -> tuple[Tick, ...]:
    """This rank's ticks.

    Parameters
    ----------
    needs : array of bool, shape (P, P)
        ``needs[rank, block]``, the same on every rank.
    rank : int
        Whose ticks.
    way : {'ring', 'direct'}
        How blocks reach those who need them.
    with_sums : bool
        Whether a sum follows each block and is sent home.

    Returns
    -------
    tuple of Tick
        At most P + 1; trailing idle ticks are dropped.

    Examples
    --------
    >>> import numpy as np
    >>> for tick in schedule(np.tri(2, dtype=bool), 1, "ring", with_sums=False):
    ...     print(tick)
    Tick(compute=1, sends=(), recvs=(Message(what='block', block=0, peer=0),))
    Tick(compute=0, sends=(), recvs=())
    """
    P = needs.shape[0]
    carry = _ring_messages if way == "ring" else _direct_messages
    reach = Reach.of(needs)
    ticks = []
    for t in range(P + 1):
        sends, recvs = carry(needs, reach, rank, t, with_sums)
        block = (rank - t) % P
        compute = block if t < P and needs[rank, block] else None
        ticks.append(Tick(compute, tuple(sends), tuple(recvs)))
    while ticks and ticks[-1] == Tick(None):
        ticks.pop()
    return tuple(ticks)


def in_place(ticks: Sequence[Tick], rank: int, nodes: Sequence[int]) -> tuple[Tick, ...]:
    """The ticks where ranks of a node read each other's blocks in place: those need not be sent to them.

    Parameters
    ----------
    ticks : sequence of Tick
        This rank's, see `schedule`.
    rank : int
        Whose ticks.
    nodes : sequence of int
        Each rank's node.

    Returns
    -------
    tuple of Tick
        As many. A rank may send on a block that it has not received, but can read.
    """

    def sent(message: Message, to: int) -> bool:
        return message.what == SUM or nodes[to] != nodes[message.block]

    return tuple(
        Tick(
            tick.compute,
            tuple(m for m in tick.sends if sent(m, m.peer)),
            tuple(m for m in tick.recvs if sent(m, rank)),
        )
        for tick in ticks
    )


_Messages = tuple[list[Message], list[Message]]


def _ring_messages(needs: np.ndarray, reach: Reach, rank: int, t: int, with_sums: bool) -> _Messages:
    P, first, last = needs.shape[0], reach.first, reach.last
    after, before = (rank + 1) % P, (rank - 1) % P
    sends, recvs = [], []
    here, coming = (rank - t) % P, (rank - 1 - t) % P
    if t < P - 1:
        if last[here] > t:
            sends.append(Message(BLOCK, here, after))
        if last[coming] > t:
            recvs.append(Message(BLOCK, coming, before))
    if with_sums and t >= 2:
        hop = t - 1  # this rank finished block `done` at the tick before
        done = (rank - hop) % P
        if first[done] <= hop < last[done]:
            sends.append(Message(SUM, done, after))
        if hop == last[done]:
            sends.append(Message(SUM, done, done))
        if t < P and first[here] <= hop < last[here]:
            recvs.append(Message(SUM, here, before))
        if last[rank] == hop:
            recvs.append(Message(SUM, rank, (rank + hop) % P))
    return sends, recvs


def _direct_messages(needs: np.ndarray, reach: Reach, rank: int, t: int, with_sums: bool) -> _Messages:
    P = needs.shape[0]
    sends, recvs = [], []
    if t < P - 1:
        to, source = (rank + t + 1) % P, (rank - t - 1) % P
        if needs[to, rank]:
            sends.append(Message(BLOCK, rank, to))
        if needs[rank, source]:
            recvs.append(Message(BLOCK, source, source))
    if with_sums and t >= 2:
        owner, helper = (rank - t + 1) % P, (rank + t - 1) % P
        if needs[rank, owner]:
            sends.append(Message(SUM, owner, owner))
        if needs[helper, rank]:
            recvs.append(Message(SUM, rank, helper))
    return sends, recvs
