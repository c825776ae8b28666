"""The cores of this node, and who has them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ringcore.cli.doctor.finding import Finding
from ringcore.cli.doctor.ranks import RankFacts, by_node, ranges
from ringcore.cli.doctor.vendors import family_of
from ringcore.cli.genome import memory
from ringcore.launcher import Launch

SECTION = "Cores"
UNBIND = {"Open MPI": "mpirun --bind-to none", "MPICH": "mpirun -bind-to none"}


def node(system: Path = Path("/")) -> Iterator[Finding]:
    """The processor of this node, its cores, and a container's limit on them.

    Parameters
    ----------
    system : Path
        Where ``/proc`` and ``/sys`` lie.
    """
    model = processor(system)
    if model:
        yield Finding(SECTION, "processor", model)
    logical, physical = os.cpu_count() or 1, physical_cores(system)
    if physical is not None and 0 < physical < logical:
        yield Finding(SECTION, "this node", f"{logical}, on {physical} physical cores (hyperthreads)")
    else:
        yield Finding(SECTION, "this node", str(logical))
    limit = quota(system)
    if limit is not None and limit < logical:
        count = max(1, int(limit))
        value = f"a container may use {limit:g} cores' time, but sees {logical} cores: threads will wait"
        yield Finding(SECTION, "quota", value, "warning", f"export OMP_NUM_THREADS={count}")


def processor(system: Path) -> str | None:
    """Name of the processor, where Linux tells."""
    try:
        lines = (system / "proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def physical_cores(system: Path) -> int | None:
    """Cores, hyperthreads of one core counted once; None where the system does not tell."""
    siblings = system.glob("sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
    try:
        return len({path.read_text().strip() for path in siblings}) or None
    except OSError:
        return None


def quota(system: Path) -> float | None:
    """Cores' worth of time that a container (cgroup v2) allows; None if all."""
    try:
        time, period = (system / "sys/fs/cgroup/cpu.max").read_text().split()
        return int(time) / int(period)
    except (OSError, ValueError):  # no such file; "max 100000"
        return None


def shares(ranks: Sequence[RankFacts], mine: RankFacts, launch: Launch | None) -> Iterator[Finding]:
    """How this node's cores fall to its ranks; what is too many, idle, or lies idle on any node."""
    nodes = by_node(ranks)
    here = nodes[mine.host]
    if mine.affinity is not None:
        yield Finding(SECTION, "binding", f"this process may run on {ranges(mine.affinity)}")
    if mine.free is not None:
        yield Finding(SECTION, "memory free", f"{memory.spoken(mine.free)} on this node")
    if launch is not None and len(ranks) < launch.size:
        yield Finding(SECTION, "cores per rank", "unknown, as the ranks do not meet", "note")
        return
    if len(ranks) > 1:
        yield Finding(SECTION, "ranks here", str(len(here)))
    cores = cores_per_rank(mine, len(here))
    yield Finding(SECTION, "cores per rank", str(cores))
    yield from _threads(mine, cores)
    yield from _crowded(nodes)
    if launch is not None:
        yield from _idle(nodes, family_of(launch))


def cores_per_rank(mine: RankFacts, ranks_here: int) -> int:
    """As the ring says; else an equal part of the cores that this process may run on."""
    if mine.cores is not None:
        return mine.cores
    return max(1, (len(mine.affinity or ()) or mine.node_cores or 1) // ranks_here)


def _threads(mine: RankFacts, cores: int) -> Iterator[Finding]:
    """Threads of the NumPy kernels: as many as BLAS may use, at most this rank's cores."""
    threads = min(mine.blas_threads or cores, cores)
    if threads < cores:
        value = f"{threads}, as BLAS may use no more: {cores - threads} of {cores} cores per rank lie idle"
        yield Finding(
            SECTION, "NumPy threads", value, "warning", f"export OMP_NUM_THREADS={cores}, or unset it"
        )
    else:
        yield Finding(SECTION, "NumPy threads", str(threads))


def _crowded(nodes: dict[str, list[RankFacts]]) -> Iterator[Finding]:
    for host, here in nodes.items():
        cores = _cores_used(here)
        if cores and len(here) > cores:
            value = f"{len(here)} ranks on {host} take turns on {cores} {'core' if cores == 1 else 'cores'}"
            yield Finding(SECTION, "oversubscribed", value, "warning", "start no more ranks than cores")


def _idle(nodes: dict[str, list[RankFacts]], family: str) -> Iterator[Finding]:
    """Cores that the launcher could have given. A batch system's may have been told to keep them."""
    for host, here in nodes.items():
        used, known = _cores_used(here), here[0].launcher_cores
        if used and known and used < known:
            value = f"the launcher binds the ranks on {host} to {used} of {known} cores"
            if family in UNBIND:
                yield Finding(SECTION, "idle cores", value, "warning", UNBIND[family])
            else:
                yield Finding(
                    SECTION, "idle cores", value, "note", "more cores per task, if the job has them"
                )


def _cores_used(here: Sequence[RankFacts]) -> int:
    return len({core for facts in here for core in facts.affinity or ()})
