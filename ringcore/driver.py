"""The eager driver: executes one rank's ticks, sending while it computes.

It knows neither attention nor which side travels; `Journey` tells what a block is, what to compute
with it and what to do with a sum that has come home.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from concurrent.futures import Future
from dataclasses import dataclass
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
    journey: Journey, ticks: Sequence[Tick], transport: Transport, backend: Backend, like: Array, timeout: float
) -> None:
    """Execute the ticks of this rank. Collective: every rank runs its own.

    Raises
    ------
    PeerTimeout
        If a rank is silent for ``timeout`` seconds; names it and the hop.
    """
    rank, size = transport.rank, transport.size
    wires: dict[int, Wire] = {}  # the block that was computed with last, packed, to be sent on
    blocks: dict[int, Arrays] = {rank: journey.own}
    sums: dict[int, Arrays] = {}
    for hop, tick in enumerate(ticks):

        def outgoing(message: Message) -> Wire:
            if message.what == SUM:
                return backend.pack(sums.pop(message.block))
            if message.block not in wires:
                wires[message.block] = backend.pack(blocks[message.block])
            return wires[message.block]

        packed = [outgoing(message) for message in tick.sends]
        specs = {BLOCK: journey.block_specs, SUM: journey.sum_specs}
        incoming = [backend.blank(specs[message.what](message.block)) for message in tick.recvs]
        for wire in packed:
            wire.ready("host")
        exchange = transport.exchange(
            [Send(w.buffer, m.peer, _tag(m.what, hop)) for w, m in zip(packed, tick.sends, strict=True)],
            [Recv(w.buffer, m.peer, _tag(m.what, hop)) for w, m in zip(incoming, tick.recvs, strict=True)],
        )
        contribution = None
        if tick.compute is not None:
            block = tick.compute
            contribution = _while_polling(
                lambda block=block: journey.compute(block, blocks[block]),  # type: ignore[misc]
                exchange if transport.needs_polling else None,
            )
        try:
            exchange.wait(timeout)
        except PeerTimeout as error:
            raise PeerTimeout(
                f"rank {rank} of {size} has waited {timeout:g} s for rank {error.peer} at hop {hop} of "
                f"{len(ticks) - 1}. That rank has died, hangs, or did not make this call; a slow one "
                "needs a larger timeout: Ring(..., timeout=seconds).",
                error.peer,
            ) from None
        del packed
        _settle(journey, tick, incoming, contribution, backend, like, (rank, hop), wires, blocks, sums)
        if not any(m.what == BLOCK and m.block == rank for later in ticks[hop + 1 :] for m in later.sends):
            wires.pop(rank, None)


def _settle(
    journey: Journey,
    tick: Tick,
    incoming: list[Wire],
    contribution: Arrays | None,
    backend: Backend,
    like: Array,
    place: tuple[int, int],
    wires: dict[int, Wire],
    blocks: dict[int, Arrays],
    sums: dict[int, Arrays],
) -> None:
    """After a hop: forget the block that was used, keep what arrived, add up, take sums home."""
    rank, hop = place
    for used in [block for block in blocks if block != rank]:
        del blocks[used]
        wires.pop(used, None)
    for message, wire in zip(tick.recvs, incoming, strict=True):
        arrays = backend.unpack(wire, like)
        if message.what == BLOCK:
            blocks[message.block], wires[message.block] = arrays, wire
        elif message.block == rank:
            journey.home(arrays)
        else:
            sums[message.block] = arrays
    if contribution is None:
        return
    assert tick.compute is not None
    if tick.compute == rank:
        journey.home(contribution)
    elif tick.compute in sums:
        sums[tick.compute] = journey.merge(sums[tick.compute], contribution)
    else:
        sums[tick.compute] = contribution


def _tag(what: str, hop: int) -> int:
    return 2 * hop + (what == SUM)


def _while_polling(compute: Callable[[], Arrays | None], exchange: Exchange | None) -> Arrays | None:
    """Compute; a transport that moves data only when asked is asked meanwhile, by this thread alone."""
    if exchange is None or exchange.test():
        return compute()
    future: Future[Arrays | None] = Future()
    context = copy_context()  # NumPy's errstate among others

    def work() -> None:
        try:
            future.set_result(context.run(compute))
        except BaseException as error:
            future.set_exception(error)

    worker = Thread(target=work, name="ringcore-compute", daemon=True)
    worker.start()
    while worker.is_alive() and not exchange.test():
        worker.join(_POLL_SECONDS)
    worker.join()
    return future.result()
