"""Cores, nodes and differences: facts of ranks that are made up, against what a person would conclude."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ringcore as rc
from ringcore.cli.doctor import cores, ranks
from ringcore.cli.doctor.finding import Finding
from ringcore.cli.doctor.ranks import RankFacts
from ringcore.launcher import LAUNCHERS, Launch

OPEN_MPI, SRUN = LAUNCHERS[0].name, LAUNCHERS[-1].name


def rank(number: int, host: str = "node1", **facts: Any) -> RankFacts:
    usual = {
        "python": "3.12.1", "ringcore": "0.1", "numpy": "2.4.6", "mpi4py": "4.1.2", "mpi": "MPICH 5",
        "kernels": "Zen", "affinity": list(range(8)), "node_cores": 8, "launcher_cores": 8, "cores": 4,
        "blas_threads": 8, "free": 10**10,
    }  # fmt: skip
    return RankFacts(number, host, **(usual | facts))


def named(found: Any, name: str) -> list[Finding]:
    return [finding for finding in found if finding.name == name]


# ------------------------------------------------------------------ differences


def test_equal_ranks_have_no_differences() -> None:
    assert list(ranks.differences([rank(0), rank(1), rank(2, "node2")])) == []


@pytest.mark.parametrize(("field", "name"), ranks.COMPARED)
def test_a_difference_is_a_problem_that_names_rank_and_host(field: str, name: str) -> None:
    everybody = [rank(0), rank(1), *(rank(n, "node2", **{field: "0.0.7"}) for n in (2, 3))]
    (found,) = ranks.differences(everybody)
    mine = getattr(everybody[0], field)
    assert found.status == "problem" and found.name == name
    assert found.value == f"ranks 2-3 on node2 have {name} 0.0.7, rank 0 on node1 has {mine}"


def test_what_one_rank_lacks_is_a_difference() -> None:
    (found,) = ranks.differences([rank(0), rank(1, mpi4py=None)])
    assert "rank 1 on node1 has mpi4py none" in found.value


def test_other_processors_are_only_noted() -> None:
    (found,) = ranks.differences([rank(0), rank(1, "node2", kernels="Haswell")])
    assert found.status == "note" and "rank 1 on node2 has BLAS kernels for Haswell" in found.value


def test_a_rank_without_facts_is_a_problem_and_compared_with_nobody() -> None:
    (found,) = ranks.differences([rank(0), RankFacts(1, "node9", error="OSError: no /proc")])
    assert found.status == "problem" and "rank 1 on node9" in found.value and "no /proc" in found.value


# ------------------------------------------------------------------ gathering


def test_everybody_comes_to_the_gathering(monkeypatch: pytest.MonkeyPatch) -> None:
    def collect(ring: rc.Ring) -> list[RankFacts]:
        mine = ranks.own(ring, None)
        return ranks.gathered(ring, replace(mine, host=f"node{ring.rank}") if ring.rank == 2 else mine)

    first, *others = rc.run_ranks(3, collect)
    assert [x.rank for x in first] == [0, 1, 2] and first[2].host == "node2"
    assert all(other == first for other in others)


def test_one_whose_facts_fail_comes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks.memory, "free", lambda: 1 / 0)
    everybody = rc.run_ranks(2, lambda ring: ranks.gathered(ring, ranks.own(ring, None)), timeout=20)[0]
    assert [x.error for x in everybody] == ["ZeroDivisionError: division by zero"] * 2


def test_own_facts() -> None:
    mine = ranks.own(None, None)
    assert mine.error is None and mine.rank == 0 and mine.node_cores == os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        assert mine.affinity == sorted(os.sched_getaffinity(0))


def test_nodes() -> None:
    everybody = [rank(0), rank(1), rank(2, "node2", cores=8, free=5 * 10**9)]
    found = list(ranks.nodes(everybody))
    assert [(x.name, x.value) for x in found] == [
        ("number", "3, nodes: 2"),
        ("node1", "ranks 0-1, cores per rank: 4, memory free: 10.0 GB"),
        ("node2", "ranks 2, cores per rank: 8, memory free: 5.0 GB"),
    ]


def test_many_nodes_do_not_flood_the_screen() -> None:
    found = list(ranks.nodes([rank(n, f"node{n}") for n in range(1000)]))
    assert len(found) == ranks.NODES_SHOWN + 2 and "984 more nodes" in found[-1].value


# ------------------------------------------------------------------ cores


def shares(everybody: list[RankFacts], launcher: str | None = OPEN_MPI) -> list[Finding]:
    launch = None if launcher is None else Launch(launcher, 0, len(everybody))
    return list(cores.shares(everybody, everybody[0], launch))


def test_the_ring_says_how_many_cores_a_rank_has() -> None:
    found = shares([rank(0, cores=4), rank(1)])
    assert named(found, "cores per rank")[0].value == "4" and named(found, "NumPy threads")[0].value == "4"
    assert named(found, "ranks here")[0].value == "2"
    assert not [x for x in found if x.status != "ok"]


@pytest.mark.parametrize(("affinity", "ranks_here", "expected"), [(8, 1, 8), (8, 3, 2), (2, 4, 1), (1, 1, 1)])
def test_a_ring_that_does_not_say(affinity: int, ranks_here: int, expected: int) -> None:
    mine = rank(0, cores=None, affinity=list(range(affinity)))
    assert cores.cores_per_rank(mine, ranks_here) == expected
    assert cores.cores_per_rank(replace(mine, affinity=None, node_cores=6), 2) == 3


def test_more_ranks_than_cores() -> None:
    found = shares([rank(n, affinity=[0, 1], launcher_cores=2, cores=1) for n in range(3)])
    (crowded,) = named(found, "oversubscribed")
    assert not named(
        shares([rank(n, affinity=[0, 1], launcher_cores=2, cores=1) for n in range(2)]), crowded.name
    )
    assert crowded.status == "warning" and crowded.value == "3 ranks on node1 take turns on 2 cores"


def test_bound_ranks_that_share_no_core_are_not_too_many() -> None:
    found = shares([rank(n, affinity=[2 * n, 2 * n + 1], cores=2) for n in range(4)])
    assert not named(found, "oversubscribed") and not named(found, "idle cores")
    assert named(found, "binding")[0].value == "this process may run on 0-1"


def test_the_node_that_is_crowded_is_named_wherever_it_is() -> None:
    found = shares([rank(0), *(rank(n, "node2", affinity=[0], launcher_cores=1) for n in (1, 2))])
    assert named(found, "oversubscribed")[0].value == "2 ranks on node2 take turns on 1 core"


def test_cores_that_binding_leaves_idle() -> None:
    bound = [rank(n, affinity=[n], cores=1, blas_threads=1) for n in range(2)]
    (idle,) = named(shares(bound), "idle cores")
    assert (idle.status, idle.cure) == ("warning", "mpirun --bind-to none")
    assert idle.value == "the launcher binds the ranks on node1 to 2 of 8 cores"
    (idle,) = named(shares(bound, SRUN), "idle cores")  # the job may have no more
    assert idle.status == "note"


def test_threads_that_the_environment_withholds() -> None:
    (threads,) = named(shares([rank(0, blas_threads=1), rank(1)]), "NumPy threads")
    assert threads.status == "warning" and "3 of 4 cores per rank lie idle" in threads.value


def test_ranks_that_do_not_meet_have_no_share() -> None:
    found = list(cores.shares([rank(0)], rank(0), Launch(OPEN_MPI, 0, 4)))
    (share,) = named(found, "cores per rank")
    assert share.value.startswith("unknown") and not named(found, "NumPy threads")


# ------------------------------------------------------------------ a node


def machine(
    system: Path, *, model: str = "CPU 9000", siblings: tuple[str, ...] = (), quota: str = ""
) -> Path:
    (system / "proc").mkdir()
    (system / "proc/cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {model}\nprocessor\t: 1\n")
    for number, text in enumerate(siblings):
        folder = system / f"sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
    if quota:
        (system / "sys/fs/cgroup").mkdir(parents=True)
        (system / "sys/fs/cgroup/cpu.max").write_text(quota + "\n")
    return system


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


@pytest.mark.usefixtures("four_cores")
def test_hyperthreads_are_told_from_cores(tmp_path: Path) -> None:
    found = list(cores.node(machine(tmp_path, siblings=("0,2", "1,3", "0,2", "1,3"))))
    assert named(found, "processor")[0].value == "CPU 9000"
    assert named(found, "this node")[0].value == "4, on 2 physical cores (hyperthreads)"


@pytest.mark.usefixtures("four_cores")
def test_no_hyperthreads(tmp_path: Path) -> None:
    (found,) = named(cores.node(machine(tmp_path, siblings=("0", "1", "2", "3"))), "this node")
    assert found.value == "4"


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("quota", "told"), [("150000 100000", True), ("max 100000", False), ("800000 100000", False)]
)
def test_the_limit_of_a_container(quota: str, told: bool, tmp_path: Path) -> None:
    found = named(cores.node(machine(tmp_path, quota=quota)), "quota")
    assert bool(found) is told
    if told:
        assert "1.5 cores" in found[0].value and found[0].cure == "export OMP_NUM_THREADS=1"


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    assert [x.name for x in cores.node(tmp_path)] == ["this node"]
