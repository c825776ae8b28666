"""ringcore on two MPI processes, the cores shared between them, zigzag layout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cases import CAUSAL, Case, Inputs

import ringcore as rc
from rivals.rival import Call, Rival, Unavailable
from rivals.team import Team

RANKS = 2


def launch(command: list[str], folder: str) -> list[list[str]]:
    """One mpiexec, that of the environment."""
    return [[str(Path(sys.executable).parent / "mpiexec"), "-n", str(RANKS), *command]]


def rank() -> tuple[int, Callable[..., Any]]:
    """In each process."""
    from mpi4py import MPI

    ring = rc.Ring(MPI.COMM_WORLD, timeout=300)
    return ring.rank, partial(prepare_rank, ring)


def prepare_rank(ring: rc.Ring, case: Case, arrays: Inputs, setting: Any) -> Any:
    layout = rc.Layout.zigzag(length=case.length, ranks=ring.size)
    q, k, v, dout = (layout.shard(x, ring.rank) for x in arrays)
    mask = rc.causal() if case.mask == CAUSAL else None

    def forward() -> Any:
        return (rc.attention(q, k, v, ring=ring, layout=layout, mask=mask),)

    def both() -> Any:
        out, pullback = rc.attention_vjp(q, k, v, ring=ring, layout=layout, mask=mask)
        return (out, *pullback(dout))

    return (both if case.backward else forward), tuple


def prepare(team: Team, case: Case, arrays: Inputs, setting: Any) -> Call:
    return team.call(case, arrays, setting, rc.Layout.zigzag(length=case.length, ranks=RANKS).unshard)


def rival(cores: int) -> Rival:
    try:
        mpi = f"mpi4py {version('mpi4py')}, MPICH {version('mpich')}"
    except PackageNotFoundError as error:
        raise Unavailable(f"no MPI in this environment: {error}") from None
    if cores < RANKS or os.name != "posix":
        raise Unavailable(f"must have {RANKS} cores. Got {cores}")
    team = Team("ringcore_mpi", RANKS, launch)
    how = f"rc.Ring(MPI.COMM_WORLD) on {RANKS} processes, zigzag, {cores // RANKS} core(s) each; {mpi}"
    return Rival(
        f"ringcore, {RANKS} processes", version("ringcore"), how, partial(prepare, team), close=team.close
    )
