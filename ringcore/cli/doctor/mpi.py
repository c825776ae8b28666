"""What MPI's facts mean for a ring."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ringcore.cli.doctor.finding import Finding
from ringcore.cli.doctor.mpi_facts import MpiFacts
from ringcore.cli.doctor.mpirun import beside
from ringcore.cli.doctor.vendors import vendor
from ringcore.launcher import Launch

SECTION = "MPI"
REBUILD = "pip install --no-cache-dir --force-reinstall --no-binary mpi4py mpi4py"
"""Without the cache, which may hold an mpi4py that was built for another MPI."""
INSTALL = (
    "on a laptop: pip install 'ringcore[mpich]'\n"
    f"on a cluster: load its MPI module, then build mpi4py for it:\n{REBUILD}"
)
THREADS = {
    "single": "no threads: no ring, as kernels compute in threads while messages move",
    "funneled": "a ring may be used from the main thread only",
    "serialized": "all that a ring needs",
    "multiple": "all that a ring needs",
}


def missing(launch: Launch | None) -> Finding:
    """That there is no mpi4py: needed as soon as several processes are to meet."""
    if launch is None or launch.size == 1:
        value = "not installed; ranks as processes. One rank, and ranks as threads, do without"
        return Finding(SECTION, "mpi4py", value, "note", INSTALL)
    value = f"not installed: the {launch.size} processes that {launch.launcher} has started cannot meet"
    return Finding(SECTION, "mpi4py", value, "problem", INSTALL)


def unloadable(why: str) -> Finding:
    """That mpi4py finds no MPI library."""
    return Finding(SECTION, "library", f"mpi4py loads none. {why}", "problem", INSTALL)


def unstartable(library: str, why: str) -> Finding:
    """That an MPI does not start, although no launcher is there that it would not know."""
    cure = "see whether its smallest program runs: python -m mpi4py.bench helloworld"
    return Finding(SECTION, "start", f"{library} {why}", "problem", cure)


def launcher(launch: Launch | None) -> Finding:
    """What has started this process."""
    if launch is None:
        return Finding(SECTION, "launcher", "none: this process is alone")
    return Finding(SECTION, "launcher", f"{launch.launcher}; processes: {launch.size}")


def library(version: str, path: str | None) -> Iterator[Finding]:
    """Vendor, version and file."""
    yield Finding(SECTION, "library", version)
    if path is not None:
        yield Finding(SECTION, "file", path)


def strangers_met(launch: Launch, version: str, path: str | None, what_happened: str) -> Finding:
    """That the launcher belongs to another MPI than the library: the cure is to use one of the two for both.

    Parameters
    ----------
    launch : Launch
    version : str
        The library's.
    path : str or None
        Its file.
    what_happened : str
        When it was started, as a sentence.
    """
    name, family = vendor(version)
    own = beside(path, family)
    use = own or (f"the mpirun of {name}" if name != "unknown" else "the mpirun of that library")
    started_by = launch.launcher[0].upper() + launch.launcher[1:]
    value = (
        f"all processes of a run must meet in one MPI. {started_by} has started {launch.size}, but mpi4py "
        f"loads {version}, which does not know that launcher. {what_happened}"
    )
    cure = f"start with {use}\nor build mpi4py for the launcher that you have:\n{REBUILD}"
    return Finding(SECTION, "mismatch", value, "problem", cure)


def started(facts: MpiFacts) -> Iterator[Finding]:
    """What an MPI that has started offers."""
    yield Finding(SECTION, "standard", facts.standard)
    level = f"{facts.provided}, asked for {facts.asked}: {THREADS[facts.provided]}"
    if facts.provided == "single":
        cure = (
            "mpi4py.rc.thread_level = 'multiple' before mpi4py.MPI is imported, or an MPI built with threads"
        )
        yield Finding(SECTION, "thread level", level, "problem", cure)
    else:
        yield Finding(SECTION, "thread level", level, "note" if facts.provided == "funneled" else "ok")
    yield Finding(SECTION, "largest tag", "unknown" if facts.tag_ub is None else str(facts.tag_ub))


def cuda(facts: MpiFacts | None, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Whether MPI may be given GPU memory: as the user, the library, the communicator say; never tried."""
    name, said = "CUDA-aware", environ.get("RINGCORE_CUDA_MPI")
    if said in ("0", "1"):
        yield Finding(SECTION, name, f"{_yes(said == '1')}, as RINGCORE_CUDA_MPI={said} says")
        return
    if said is not None:
        value = f"RINGCORE_CUDA_MPI must be 0 or 1. Got {said!r}: it is ignored"
        yield Finding(SECTION, "RINGCORE_CUDA_MPI", value, "warning", "unset RINGCORE_CUDA_MPI")
    if facts is None:
        return
    if facts.cuda_query is not None:
        yield Finding(SECTION, name, f"{_yes(facts.cuda_query)}, MPIX_Query_cuda_support says")
    elif facts.memory_kinds is not None:
        kinds = [kind.partition(":")[0] for kind in facts.memory_kinds.split(",")]
        yield Finding(
            SECTION, name, f"{_yes('cuda' in kinds)}, mpi_memory_alloc_kinds is {facts.memory_kinds}"
        )
    else:
        yield Finding(SECTION, name, "no: the library does not say so. RINGCORE_CUDA_MPI=1 overrules it")


def _yes(aware: bool) -> str:
    return "yes" if aware else "no"
