"""What a rank shares its node with: which other ranks, and which part of the cores."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ringcore_mpi.transport import MpiTransport


def on_this_node(transport: MpiTransport, timeout: float) -> tuple[int, tuple[int, ...]]:
    """How many cores this rank may keep busy, and each rank's node. Collective, when all ranks are there.

    Each core is divided among the ranks that may run on it. So ranks that the launcher has bound have their
    own cores, and unbound ones an equal part of the node. A node's number is that of its first rank.
    """
    from mpi4py import MPI

    comm = cast(MPI.Intracomm, transport.comm.Split_type(MPI.COMM_TYPE_SHARED))
    ranks = comm.Get_group().Translate_ranks(None, transport.comm.Get_group())
    node = transport.part(comm, ranks, "node")
    notes = node.allgather_bytes(json.dumps(sorted(_affinity())).encode(), timeout)
    node.close()
    nodes = tuple(int(note) for note in transport.allgather_bytes(str(min(ranks)).encode(), timeout))
    return share([frozenset(json.loads(note)) for note in notes], node.rank), nodes


def share(affinities: Sequence[frozenset[int]], rank: int) -> int:
    """A rank's cores, of the sets of cores that the ranks of a node may run on.

    Examples
    --------
    >>> everything = frozenset(range(8))
    >>> share([everything] * 3, 0)  # unbound: 8 / 3
    2
    >>> share([frozenset({0, 1}), frozenset({2, 3})], 1)  # bound
    2
    >>> share([frozenset({0})] * 4, 2)  # more ranks than cores
    1
    """
    mine = sum(1 / sum(core in other for other in affinities) for core in affinities[rank])
    return max(1, math.floor(mine + 1e-9))


def _affinity() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
