"""What an attention call on tiny arrays costs beside a ping-pong of the same bytes.

    mpirun -n 2 python benchmarks/bench_mpi_latency.py --json benchmarks/results/mpi_latency_mpich.json

64 tokens on two ranks. The ping-pong sends what the call sends (one block of K and V each way) there and
back: once with mpi4py's blocking Send and Recv, once with ringcore's transport. Beside them the floor: the
same attention written out in a few lines of NumPy and mpi4py for this one case - K and V exchanged by one
Sendrecv, two products and a softmax over all keys - with no checks, no masks and no overlap. All are timed in
turn, several times over; a figure is the median of a round, and the table has the best round: machines are
shared.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import threadpoolctl
from mpi4py import MPI

import ringcore as rc
from ringcore.protocols import Recv, Send

TOKENS, ROUNDS, CALLS = 64, 7, 60
SHAPES = [(1, 16), (4, 64), (8, 64), (16, 128), (32, 128)]


def median_seconds(work: Callable[[], object], calls: int) -> float:
    """Of one call, among ``calls`` in a row."""
    times = np.empty(calls)
    for i in range(calls):
        begin = time.perf_counter()
        work()
        times[i] = time.perf_counter() - begin
    return float(np.median(times))


def measured(comm: MPI.Intracomm, heads: int, dim: int) -> dict[str, float]:
    """Microseconds for one shape. Collective."""
    always = rc.Ring(comm, timeout=60)
    once = rc.Ring(comm, timeout=60, check="once")
    layout = rc.Layout.contiguous(length=TOKENS, ranks=2)
    rng = np.random.default_rng(comm.rank)
    x = rng.standard_normal((heads, TOKENS // 2, dim), dtype=np.float32)
    nbytes = 2 * x.nbytes
    out, into = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    peer, transport = 1 - comm.rank, always.transport
    theirs, scale = np.zeros(2 * x.size, np.float32), np.float32(dim**-0.5)

    def raw() -> None:
        if comm.rank == 0:
            comm.Send(out, 1)
            comm.Recv(into, 1)
        else:
            comm.Recv(into, 0)
            comm.Send(out, 0)

    def through_transport() -> None:
        if comm.rank == 0:
            transport.exchange([Send(out, peer, 0)], []).wait(60)
            transport.exchange([], [Recv(into, peer, 0)]).wait(60)
        else:
            transport.exchange([], [Recv(into, peer, 0)]).wait(60)
            transport.exchange([Send(out, peer, 0)], []).wait(60)

    def floor() -> np.ndarray:
        mine = np.concatenate([x, x]).reshape(-1)  # K and V in one message
        comm.Sendrecv(mine, peer, recvbuf=theirs, source=peer)
        k, v = theirs.reshape(2, heads, TOKENS // 2, dim)
        scores = x @ np.concatenate([x, k], axis=1).swapaxes(1, 2)
        scores *= scale
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        out: np.ndarray = scores @ np.concatenate([x, v], axis=1)
        out /= scores.sum(axis=-1, keepdims=True)
        return out

    def attention(ring: rc.Ring) -> Callable[[], object]:
        return lambda: rc.attention(x, x, x, ring=ring, layout=layout)

    works = {
        "pingpong": raw,
        "transport pingpong": through_transport,
        "floor": floor,
        "attention": attention(always),
        "attention, once": attention(once),
        "one rank alone": lambda: rc.attention(x, x, x),
    }
    assert np.allclose(floor(), rc.attention(x, x, x, ring=always, layout=layout), atol=1e-5)
    rounds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        median_seconds(work, CALLS)
    for _ in range(ROUNDS):
        for name, work in works.items():
            comm.Barrier()
            rounds[name].append(median_seconds(work, CALLS))
    found = {name: round(1e6 * min(times), 1) for name, times in rounds.items()}
    return {"heads": heads, "dim": dim, "bytes": nbytes, **found}


def main() -> None:
    """Print a table on rank 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        raise SystemExit(f"must run on 2 ranks: mpirun -n 2. Got {comm.size}.")
    threadpoolctl.threadpool_limits(1)  # for the floor; ours takes this rank's share by itself
    rows = [measured(comm, heads, dim) for heads, dim in SHAPES]
    if comm.rank != 0:
        return
    columns = ["pingpong", "transport pingpong", "floor", "one rank alone", "attention", "attention, once"]
    print("| heads x dim | bytes |", " | ".join(columns), "| floor / pingpong | once / pingpong |")
    print("|---" * (len(columns) + 4) + "|")
    for row in rows:
        figures = " | ".join(f"{row[column]:.0f} us" for column in columns)
        ratios = " | ".join(f"{row[name] / row['pingpong']:.0f}" for name in ("floor", "attention, once"))
        print(f"| {row['heads']} x {row['dim']} | {row['bytes']:,} | {figures} | {ratios} |")
    if args.json:
        about = {
            "tokens": TOKENS,
            "library": MPI.Get_library_version().partition("\n")[0].strip(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "microseconds": rows,
        }
        args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
