"""Facts of each rank, gathered, and what differs between them."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ringcore as rc
from ringcore.cli.doctor import blas
from ringcore.cli.doctor.finding import Finding, spoken
from ringcore.cli.doctor.mpi_facts import MpiFacts
from ringcore.cli.doctor.software import installed
from ringcore.cli.genome import memory
from ringcore.cli.version import installed_version

SECTION = "Ranks"
NODES_SHOWN = 16


@dataclass(frozen=True)
class RankFacts:
    """What a rank knows of itself; None where it does not.

    Attributes
    ----------
    rank : int
    host, python, ringcore, numpy, mpi4py, mpi, kernels : str
        ``mpi`` is its library, ``kernels`` the core type that BLAS has chosen.
    affinity : list of int
        The cores that it may run on.
    node_cores, launcher_cores : int
        Cores of its node, and of those the ones that the process which has started it may run on.
    cores : int
        That it may keep busy, as its ring says.
    blas_threads : int
    free : int
        Bytes of memory that its node can give.
    error : str
        Why the rest is missing.
    """

    rank: int
    host: str
    error: str | None = None
    python: str | None = None
    ringcore: str | None = None
    numpy: str | None = None
    mpi4py: str | None = None
    mpi: str | None = None
    kernels: str | None = None
    affinity: list[int] | None = None
    node_cores: int | None = None
    launcher_cores: int | None = None
    cores: int | None = None
    blas_threads: int | None = None
    free: int | None = None


def own(ring: rc.Ring | None, facts: MpiFacts | None) -> RankFacts:
    """This process's facts. Never raises: who did, would not come to the gathering."""
    rank = 0 if ring is None else ring.rank
    try:
        host = socket.gethostname()
    except OSError:
        host = "unknown host"
    try:
        return RankFacts(
            rank=rank,
            host=host,
            python=platform.python_version(),
            ringcore=installed_version(),
            numpy=installed("numpy", ("numpy",)),
            mpi4py=installed("mpi4py", ("mpi4py",)),
            mpi=None if facts is None else facts.library,
            kernels=blas.kernels(),
            affinity=_affinity(0),
            node_cores=os.cpu_count(),
            launcher_cores=len(_affinity(os.getppid()) or ()) or None,
            cores=None if ring is None else getattr(ring.transport, "cores", None),
            blas_threads=blas.threads(),
            free=memory.free(),
        )
    except Exception as error:
        return RankFacts(rank=rank, host=host, error=spoken(error))


def _affinity(process: int) -> list[int] | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        return sorted(os.sched_getaffinity(process))
    except OSError:
        return None


def gathered(ring: rc.Ring | None, mine: RankFacts) -> list[RankFacts]:
    """Everybody's facts, in rank order. Collective."""
    if ring is None or ring.size == 1:
        return [mine]
    answers = ring.transport.allgather_bytes(json.dumps(asdict(mine)).encode(), ring.timeout)
    return [RankFacts(**json.loads(answer)) for answer in answers]


def by_node(ranks: Sequence[RankFacts]) -> dict[str, list[RankFacts]]:
    """The ranks of each node, nodes in the order of their first ranks."""
    nodes: dict[str, list[RankFacts]] = {}
    for facts in ranks:
        nodes.setdefault(facts.host, []).append(facts)
    return nodes


COMPARED = (
    ("python", "Python"),
    ("ringcore", "ringcore"),
    ("numpy", "NumPy"),
    ("mpi4py", "mpi4py"),
    ("mpi", "MPI"),
)
"""What must be the same on all ranks."""


def differences(ranks: Sequence[RankFacts]) -> Iterator[Finding]:
    """A line for each version that is not rank 0's, and for each rank that could not tell."""
    for facts in ranks:
        if facts.error is not None:
            value = f"rank {facts.rank} on {facts.host} could not tell its state: {facts.error}"
            yield Finding(SECTION, "error", value, "problem", f"ringcore doctor alone on {facts.host}")
    told = [facts for facts in ranks if facts.error is None]
    for field, name in COMPARED:
        for value in _others(told, field, name):
            cure = (
                "use one environment, on a file system that all nodes see, or install the same on every node"
            )
            yield Finding(SECTION, name, value, "problem", cure)
    for value in _others(told, "kernels", "BLAS kernels for"):
        yield Finding(SECTION, "processors", value + ": the slowest ones set the pace", "note")


def _others(ranks: Sequence[RankFacts], field: str, name: str) -> Iterator[str]:
    """Who has something else than the first of them."""
    having: dict[Any, list[RankFacts]] = {}
    for facts in ranks:
        having.setdefault(getattr(facts, field), []).append(facts)
    if len(having) < 2:
        return
    (value, first), *rest = having.items()
    for other, holders in rest:
        yield (
            f"{_who(holders)} {_have(holders)} {name} {_or_none(other)}, "
            f"rank {first[0].rank} on {first[0].host} has {_or_none(value)}"
        )


def _who(ranks: Sequence[RankFacts]) -> str:
    hosts = list(dict.fromkeys(facts.host for facts in ranks))
    where = ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges([facts.rank for facts in ranks])} on {where}"


def _have(ranks: Sequence[RankFacts]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _or_none(value: str | None) -> str:
    return "none" if value is None else value or "unknown"


def nodes(ranks: Sequence[RankFacts]) -> Iterator[Finding]:
    """A line for each node: its ranks, its cores for each of them, its memory."""
    everywhere = by_node(ranks)
    yield Finding(SECTION, "number", f"{len(ranks)}, nodes: {len(everywhere)}")
    for host, here in list(everywhere.items())[:NODES_SHOWN]:
        parts = [f"ranks {ranges([facts.rank for facts in here])}"]
        cores = {facts.cores for facts in here if facts.cores is not None}
        if cores:
            parts.append(f"cores per rank: {ranges(sorted(cores))}")
        free = min((facts.free for facts in here if facts.free is not None), default=None)
        if free is not None:
            parts.append(f"memory free: {memory.spoken(free)}")
        yield Finding(SECTION, host, ", ".join(parts))
    if len(everywhere) > NODES_SHOWN:
        yield Finding(SECTION, "...", f"{len(everywhere) - NODES_SHOWN} more nodes; --json has them all")


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in rising order, runs of them joined.

    Examples
    --------
    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
