"""The eager driver: executes one rank's ticks, sending while it computes.

It knows neither attention nor which side travels; `Journey` tells what a block is, what to compute
with it and what to do with a sum that has come home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Thread

from ringcore.errors import PeerTimeout
from ringcore.protocols import Array, ArraySpec, Backend, Exchange, Recv, Send, Transport, Wire
from ringcore.schedule import BLOCK, SUM, Message, Tick

_POLL_SECONDS = 0.0005

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
) -> None:
    """Execute the ticks of this rank. Collective: every rank runs its own.

    Raises
    ------
    PeerTimeout
        If a rank is silent for ``timeout`` seconds; names it and the hop.
    """
    cargo = _Cargo(journey, backend, transport.rank, like)
    for hop, tick in enumerate(ticks):
        try:
            _hop(cargo, hop, tick, transport, timeout)
        except PeerTimeout as error:
            raise PeerTimeout(
                f"rank {transport.rank} of {transport.size} has waited {timeout:g} s for rank {error.peer} "
                f"at hop {hop} of {len(ticks) - 1}. That rank has died, hangs, or did not make this call; "
                "a slow one needs a larger timeout: Ring(..., timeout=seconds).",
                error.peer,
            ) from None
        cargo.drop_own_wire_unless_sent_in(ticks[hop + 1 :])


def _hop(cargo: _Cargo, hop: int, tick: Tick, transport: Transport, timeout: float) -> None:
    outgoing = [cargo.pack(message) for message in tick.sends]
    incoming = [cargo.blank(message) for message in tick.recvs]
    for wire in outgoing:
        wire.ready("host")
    exchange = transport.exchange(
        [Send(w.buffer, m.peer, _tag(m, hop)) for w, m in zip(outgoing, tick.sends, strict=True)],
        [Recv(w.buffer, m.peer, _tag(m, hop)) for w, m in zip(incoming, tick.recvs, strict=True)],
    )
    contribution = None
    if tick.compute is not None:
        work = partial(cargo.journey.compute, tick.compute, cargo.blocks[tick.compute])
        contribution = _while_polling(work, exchange) if transport.needs_polling else work()
    exchange.wait(timeout)
    cargo.forget_visitors()
    for message, wire in zip(tick.recvs, incoming, strict=True):
        cargo.take(message, wire)
    if tick.compute is not None and contribution is not None:
        cargo.add(tick.compute, contribution)


@dataclass
class _Cargo:
    """What a rank holds between hops: its own block, one visiting block, and sums on their way."""

    journey: Journey
    backend: Backend
    rank: int
    like: Array

    def __post_init__(self) -> None:
        self.blocks: dict[int, Arrays] = {self.rank: self.journey.own}
        self.wires: dict[int, Wire] = {}  # the same blocks as they go on, unpacked arrays are views of them
        self.sums: dict[int, Arrays] = {}

    def pack(self, message: Message) -> Wire:
        if message.what == SUM:
            return self.backend.pack(self.sums.pop(message.block))
        if message.block not in self.wires:
            self.wires[message.block] = self.backend.pack(self.blocks[message.block])
        return self.wires[message.block]

    def blank(self, message: Message) -> Wire:
        specs_of = self.journey.sum_specs if message.what == SUM else self.journey.block_specs
        return self.backend.blank(specs_of(message.block))

    def take(self, message: Message, wire: Wire) -> None:
        arrays = self.backend.unpack(wire, self.like)
        if message.what == BLOCK:
            self.blocks[message.block], self.wires[message.block] = arrays, wire
        elif message.block == self.rank:
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

    def forget_visitors(self) -> None:
        for block in [b for b in self.blocks if b != self.rank]:
            del self.blocks[block], self.wires[block]

    def drop_own_wire_unless_sent_in(self, later: Sequence[Tick]) -> None:
        if not any(m.what == BLOCK and m.block == self.rank for tick in later for m in tick.sends):
            self.wires.pop(self.rank, None)


def _tag(message: Message, hop: int) -> int:
    return 2 * hop + (message.what == SUM)


def _while_polling(work: Callable[[], Arrays | None], exchange: Exchange) -> Arrays | None:
    """Compute; a transport that moves data only when asked is asked meanwhile, by this thread alone."""
    if exchange.test():
        return work()
    future: Future[Arrays | None] = Future()
    context = copy_context()  # NumPy's errstate among others

    def compute() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    worker = Thread(target=compute, name="ringcore-compute", daemon=True)
    worker.start()
    while worker.is_alive() and not exchange.test():
        worker.join(_POLL_SECONDS)
    worker.join()
    return future.result()
