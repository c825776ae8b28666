"""One of the two ranks of `bench_overlap.py`, which starts it.

Each attention call is followed by its very exchanges alone: same sizes, peers and order, nothing computed.
Time is taken in a wrapper around the ring's transport, so what is measured is the library as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import machine
import numpy as np
from mpi4py import MPI

import ringcore as rc
from ringcore.protocols import Exchange, Recv, Send, Transport

HEADS, DIM = 4, 128
ALONE = 3
"""How often the exchanges are repeated alone; the median counts."""
TIMEOUT = 120.0


@dataclass
class Timed:
    """An exchange with its times, in seconds: of the clock that both ranks have, or as durations."""

    exchange: Exchange
    sends: list[tuple[int, int, int]]  # bytes, peer, tag
    recvs: list[tuple[int, int, int]]
    begun: float
    posted: float
    cpu: float  # that this thread has spent in MPI for it
    computed: float = 0.0
    polls: int = 0
    landed: float = 0.0  # when it was first seen that all had
    waiting: float = 0.0  # when it began to wait
    ended: float = 0.0

    def test(self) -> bool:
        before = time.thread_time()
        done = self.exchange.test()
        self.cpu += time.thread_time() - before
        self.polls += 1
        if done and not self.landed:
            self.landed = time.monotonic()
        return done

    def wait(self, timeout: float) -> None:
        self.waiting, before = time.monotonic(), time.thread_time()
        self.exchange.wait(timeout)
        self.ended = time.monotonic()
        self.landed = self.landed or self.ended
        self.cpu += time.thread_time() - before

    @property
    def moves(self) -> bool:
        return bool(self.sends or self.recvs)

    @property
    def blocked(self) -> float:
        return self.ended - self.waiting

    def late(self, peer_begun: float) -> float:
        """The part of `blocked` in which the other rank had not come to this exchange yet."""
        return min(max(peer_begun - self.waiting, 0.0), self.blocked)


class Stopwatch:
    """A transport that notes its exchanges; all else is the transport's own."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.log: list[Timed] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    @property
    def status(self) -> str:
        return self.transport.status

    @status.setter
    def status(self, status: str) -> None:
        self.transport.status = status

    def exchange(self, sends: Sequence[Send], recvs: Sequence[Recv]) -> Timed:
        begun, before = time.monotonic(), time.thread_time()
        exchange = self.transport.exchange(sends, recvs)
        posted, cpu = time.monotonic(), time.thread_time() - before
        sent = [(s.buffer.nbytes, s.to, s.tag) for s in sends]
        received = [(r.buffer.nbytes, r.source, r.tag) for r in recvs]
        self.log.append(Timed(exchange, sent, received, begun, posted, cpu))
        return self.log[-1]

    @contextmanager
    def computing(self) -> Iterator[None]:
        begun = time.monotonic()
        with self.transport.computing():
            yield
        self.log[-1].computed = time.monotonic() - begun

    def taken(self) -> list[Timed]:
        """What has been noted since the last time."""
        taken, self.log = self.log, []
        return taken


def alone(transport: Transport, exchanges: Sequence[Timed]) -> list[float]:
    """Seconds that each of them takes when nothing is computed; 0 where nothing moves. Collective."""
    watch = Stopwatch(transport)
    out = np.ones(max((nbytes for x in exchanges for nbytes, _, _ in x.sends), default=0), np.uint8)
    for x in exchanges:
        if x.moves:
            into = [np.empty(nbytes, np.uint8) for nbytes, _, _ in x.recvs]  # fresh, as in a call
            watch.exchange(
                [Send(out[:nbytes], peer, tag) for nbytes, peer, tag in x.sends],
                [Recv(b, peer, tag) for b, (_, peer, tag) in zip(into, x.recvs, strict=True)],
            ).wait(TIMEOUT)
    taken = iter(watch.taken())
    return [(y := next(taken)).ended - y.begun if x.moves else 0.0 for x in exchanges]


def sent(interface: str) -> int:
    """Bytes that have left this host."""
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def call(ring: rc.Ring, watch: Stopwatch, tokens: int, mask: str) -> tuple[list[Timed], list[Timed], float]:
    """One forward and backward pass; the exchanges of each, and the seconds of the first. Collective."""
    length = 2 * tokens
    causal = mask == "causal"
    layout = (rc.Layout.zigzag if causal else rc.Layout.contiguous)(length=length, ranks=2)
    rng = np.random.default_rng(ring.rank)
    q, k, v, dout = rng.standard_normal((4, HEADS, tokens, DIM), dtype=np.float32)
    MPI.COMM_WORLD.Barrier()
    begun = time.monotonic()
    _, pullback = rc.attention_vjp(q, k, v, ring=ring, layout=layout, mask=rc.causal() if causal else None)
    seconds, forward = time.monotonic() - begun, watch.taken()
    pullback(dout)
    return forward, watch.taken(), seconds


def measured(ring: rc.Ring, watch: Stopwatch, tokens: int, mask: str, interface: str) -> dict[str, Any]:
    """One call and its exchanges alone, as this rank has seen it. Collective."""
    comm = MPI.COMM_WORLD
    comm.Barrier()
    bytes_before, begun = sent(interface), time.monotonic()
    forward, backward, forward_seconds = call(ring, watch, tokens, mask)
    seconds = time.monotonic() - begun
    comm.Barrier()
    on_link = sent(interface) - bytes_before
    exchanges = forward + backward
    peer_begun = comm.alltoall([[x.begun for x in exchanges]] * 2)[1 - comm.rank]
    times = []
    for _ in range(ALONE):
        comm.Barrier()
        times.append(alone(watch.transport, exchanges))
    by_exchange = [
        {
            "pass": "forward" if i < len(forward) else "backward",
            "bytes": sum(nbytes for nbytes, _, _ in x.sends),
            "alone": median(row[i] for row in times),
            "beside computing": x.landed - x.begun if x.moves else 0.0,
            "posting": x.posted - x.begun if x.moves else 0.0,
            "blocked": x.blocked if x.moves else 0.0,
            "late": x.late(peer_begun[i]) if x.moves else 0.0,
            "computed": x.computed,
            "cpu": x.cpu,
            "polls": x.polls,
        }
        for i, x in enumerate(exchanges)
    ]
    return {"forward": forward_seconds, "both": seconds, "on_link": on_link, "exchanges": by_exchange}


def link_rate(nbytes: int = 2**26) -> dict[str, float]:
    """Gbit/s that plain mpi4py gets, one way and both ways at once; the best of five. Collective."""
    comm = MPI.COMM_WORLD
    out, into, peer = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8), 1 - comm.rank
    best = {"one way": 0.0, "both ways": 0.0}
    for way in list(best) * 5:
        comm.Barrier()
        begun = time.monotonic()
        if way == "both ways":
            comm.Sendrecv(out, peer, recvbuf=into, source=peer)
        elif comm.rank == 0:
            comm.Send(out, peer)
            comm.Recv(into[:1], peer)
        else:
            comm.Recv(into, peer)
            comm.Send(out[:1], peer)
        best[way] = max(best[way], 8 * nbytes / (time.monotonic() - begun) / 1e9)
    return best


def main() -> None:
    """Write what both ranks have seen to a file, on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", required=True)
    parser.add_argument("--masks", nargs="+", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    ring = rc.Ring(comm, timeout=TIMEOUT)
    watch = Stopwatch(ring.transport)
    ring.transport = watch
    rows = []
    for mask in args.masks:
        call(ring, watch, 1024, mask)  # compiles
    rate = link_rate()
    for tokens in args.tokens:
        for mask in args.masks:
            for _ in range(args.rounds * min(5, max(1, 2**13 // tokens))):
                ranks = comm.gather(measured(ring, watch, tokens, mask, args.interface))
                rows.append({"tokens": tokens, "mask": mask, "ranks": ranks})
            if comm.rank == 0:
                print(f"{tokens:,} tokens per rank, {mask}: done", file=sys.stderr, flush=True)
    if comm.rank == 0:
        library = " ".join(MPI.Get_library_version().partition("\n")[0].split())
        about = {
            "library": library,
            "cores_per_rank": ring.transport.cores,
            "heads": HEADS,
            "dim": DIM,
            "machine": machine.facts(2),
        }
        args.json.write_text(json.dumps({**about, "gbit": rate, "rows": rows}))


if __name__ == "__main__":
    main()
