"""The eager driver: executes one rank's ticks, sending while it computes.

It knows neither attention nor which side travels; `Journey` tells what a block is, what to compute
with it and what to do with a sum that has come home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from array_api_compat import array_namespace

from ringcore.errors import RingError
from ringcore.protocols import (
    Array,
    ArraySpec,
    Backend,
    Exchange,
    Recv,
    Send,
    SharesMemory,
    Transport,
    Wire,
)
from ringcore.schedule import BLOCK, SUM, Message, Tick, in_place
from ringcore.wire import from_host, over
from ringcore.worker import Worker

_POLL_SECONDS = 0.0005
_ANSWER_SECONDS = 0.02  # when nothing of ours is on its way, others are still to hear that we compute

Arrays = tuple[Array, ...]


@dataclass(frozen=True)
class Journey:
    """What travels, and what is done on the way.

    Attributes
    ----------
    own : tuple of arrays
        This rank's block.
    block_specs, sum_specs : callable
        Owner -> specs of its block, and of the sum that follows it.
    compute : callable
        (owner, block) -> this rank's contribution to the block's sum; None where no sum follows.
    merge : callable
        (sum, contribution) -> sum.
    home : callable
        Takes a sum for this rank's own block.
    """

    own: Arrays
    block_specs: Callable[[int], Sequence[ArraySpec]]
    sum_specs: Callable[[int], Sequence[ArraySpec]]
    compute: Callable[[int, Arrays], Arrays | None]
    merge: Callable[[Arrays, Arrays], Arrays]
    home: Callable[[Arrays], None]


def run(
    journey: Journey,
    ticks: Sequence[Tick],
    transport: Transport,
    backend: Backend,
    like: Array,
    timeout: float,
    worker: Worker,
    mark: bytes = b"",
    share: SharesMemory | None = None,
) -> None:
    """Execute the ticks of this rank. Collective: every rank runs its own.

    Parameters
    ----------
    worker : Worker
        Computes where the transport needs polling.
    mark : bytes
        What every message carries and is held to on receipt; empty: nothing.
    share : SharesMemory, optional
        The transport, if blocks of this node are to be read where they lie; the same on all ranks.

    Raises
    ------
    PeerTimeout
        If a rank is silent for ``timeout`` seconds; names it and the hop.
    RingError
        If a message carries another mark.
    """
    cargo = _Cargo(journey, ticks, backend, transport, like, mark)
    if share is not None and cargo.publish(share, timeout):
        ticks = in_place(ticks, transport.rank, share.nodes)
        cargo.last_sent = _last_sent(ticks, transport.rank)
    call = transport.status
    for hop, tick in enumerate(ticks):
        transport.status = f"{call}, hop {hop} of {len(ticks) - 1}"
        _hop(cargo, hop, tick, transport, timeout, worker)
    transport.status = call


def _hop(cargo: _Cargo, hop: int, tick: Tick, transport: Transport, timeout: float, worker: Worker) -> None:
    outgoing = [cargo.pack(message) for message in tick.sends]
    incoming = [cargo.blank(message) for message in tick.recvs]
    for wire in outgoing:
        wire.ready()
    exchange = transport.exchange(
        [Send(w.buffer, m.peer, _tag(m, hop)) for w, m in zip(outgoing, tick.sends, strict=True)],
        [Recv(w.buffer, m.peer, _tag(m, hop)) for w, m in zip(incoming, tick.recvs, strict=True)],
    )
    contribution = None
    if tick.compute is not None:
        work = partial(cargo.journey.compute, tick.compute, cargo.block(tick.compute))
        with transport.computing():
            contribution = _while_polling(worker, work, exchange) if transport.needs_polling else work()
        del work
    exchange.wait(timeout)
    del outgoing, exchange  # sums are added below: what has been sent need not be held meanwhile
    cargo.leave(hop)
    for message, wire in zip(tick.recvs, incoming, strict=True):
        cargo.take(message, wire)
    if tick.compute is not None and contribution is not None:
        cargo.add(tick.compute, contribution)


class _Cargo:
    """What a rank holds between hops: one block to compute with, its own as long as it sends it, and sums."""

    def __init__(
        self,
        journey: Journey,
        ticks: Sequence[Tick],
        backend: Backend,
        transport: Transport,
        like: Array,
        mark: bytes,
    ) -> None:
        self.journey, self.backend, self.like = journey, backend, like
        self.rank, self.where = transport.rank, transport.where
        self.mark = _Mark(mark, like)
        self.sums: dict[int, Arrays] = {}
        self.wires: dict[int, Wire] = {}  # blocks as they go on; unpacked arrays are views of them
        self.last_sent = _last_sent(ticks, self.rank)
        own = journey.own
        if self.last_sent >= 0:
            self.wires[self.rank] = backend.pack(self.mark.arrays + own, self.where)
            own = self._unpacked(self.wires[self.rank], self.rank)  # the same bits as others compute with
        self.blocks: dict[int, Arrays] = {self.rank: own}
        self.shown: dict[int, Array] = {}  # buffers of this node's blocks, read where they lie

    def publish(self, share: SharesMemory, timeout: float) -> bool:
        """Show this rank's block, if anybody needs it, and see those of the others; whether that can be."""
        own = self.wires.get(self.rank)
        shown = share.publish(np.empty(0, np.uint8) if own is None else own.buffer, timeout)
        if shown is None:
            return False
        self.shown = shown
        if own is not None:  # the copy stands for it
            self.blocks.clear()
            self.wires.clear()
        else:
            del shown[self.rank]
        return True

    def block(self, owner: int) -> Arrays:
        """A block's arrays."""
        if owner not in self.blocks:
            self.blocks[owner] = self._unpacked(self._wire(owner), owner)
        return self.blocks[owner]

    def _wire(self, owner: int) -> Wire:
        """A block as it goes on: as it came, or where it lies."""
        if owner not in self.wires:
            self.wires[owner] = over(self.shown.pop(owner), self._specs(self.journey.block_specs, owner))
        return self.wires[owner]

    def _specs(self, specs_of: Callable[[int], Sequence[ArraySpec]], owner: int) -> tuple[ArraySpec, ...]:
        return *self.mark.specs, *specs_of(owner)

    def pack(self, message: Message) -> Wire:
        if message.what == SUM:
            return self.backend.pack(self.mark.arrays + self.sums.pop(message.block), self.where)
        return self._wire(message.block)

    def blank(self, message: Message) -> Wire:
        specs_of = self.journey.sum_specs if message.what == SUM else self.journey.block_specs
        return self.backend.blank(self._specs(specs_of, message.block), self.where)

    def take(self, message: Message, wire: Wire) -> None:
        if message.what == BLOCK:
            self.blocks[message.block] = self._unpacked(wire, message.peer)
            self.wires[message.block] = wire
            return
        arrays = self.mark.checked(self.backend.unpack(wire, self.like), message.peer)
        if message.block == self.rank:
            self.journey.home(arrays)
        else:
            self.sums[message.block] = arrays

    def add(self, block: int, contribution: Arrays) -> None:
        if block == self.rank:
            self.journey.home(contribution)
        elif block in self.sums:
            self.sums[block] = self.journey.merge(self.sums[block], contribution)
        else:
            self.sums[block] = contribution

    def _unpacked(self, wire: Wire, source: int) -> Arrays:
        """A block's arrays, read-only where NumPy can say so: their bytes may be on their way out."""
        arrays = self.mark.checked(self.backend.unpack(wire, self.like), source)
        for x in arrays:
            if isinstance(x, np.ndarray):
                x.flags.writeable = False
        return arrays

    def leave(self, hop: int) -> None:
        """A hop is over: no block is computed with twice, and only one's own is sent from home again."""
        self.blocks.clear()
        for block in [b for b in self.wires if b != self.rank or hop >= self.last_sent]:
            del self.wires[block]


class _Mark:
    """What messages begin with, where ranks rely on an earlier comparison of their arguments."""

    def __init__(self, mark: bytes, like: Array) -> None:
        self.arrays: Arrays = ()
        self.specs: tuple[ArraySpec, ...] = ()
        if mark:
            self.arrays = (from_host(np.frombuffer(mark, np.uint8).copy(), like),)
            self.specs = (ArraySpec(tuple(self.arrays[0].shape), self.arrays[0].dtype),)

    def checked(self, arrays: Arrays, source: int) -> Arrays:
        """The arrays behind the mark, which must be this rank's own."""
        if not self.arrays:
            return arrays
        xp = array_namespace(arrays[0])
        if not bool(xp.all(arrays[0] == self.arrays[0])):
            raise RingError(
                "all ranks must pass the same arguments. Those of a message from rank "
                f"{source} differ from this rank's, which were compared on an earlier call only. "
                'Make the ring with check="always" to be told the difference.'
            )
        return arrays[1:]


def _last_sent(ticks: Sequence[Tick], rank: int) -> int:
    """The last hop at which a rank sends its own block; -1 if it never does."""
    sends = (
        hop
        for hop, tick in enumerate(ticks)
        if any(message.what == BLOCK and message.block == rank for message in tick.sends)
    )
    return max(sends, default=-1)


def _tag(message: Message, hop: int) -> int:
    return 2 * hop + (message.what == SUM)


def _while_polling(worker: Worker, work: Callable[[], Arrays | None], exchange: Exchange) -> Arrays | None:
    """Compute; a transport that moves data only when asked is asked meanwhile, by this thread alone."""
    try:
        task = worker.begin(work)
        del work  # it holds a block
        seconds = _POLL_SECONDS  # a look at once would only keep Python's lock from the worker
        while not task.wait(seconds):
            seconds = _ANSWER_SECONDS if exchange.test() else _POLL_SECONDS
    except BaseException:  # ends the call
        worker.abandon()
        raise
    return task.result()  # type: ignore[no-any-return]
