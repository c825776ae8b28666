"""What launchers say of the processes that they start, in made-up environments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcore.launcher import LAUNCHERS, Launch, launched

REAL = {
    "Open MPI 5": (
        {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "4",
            "PMIX_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        },
        ("Open MPI", 1, 4),
    ),
    "MPICH": ({"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, ("MPICH", 3, 4)),
    "srun": ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8"}, ("srun", 2, 8)),
    "Open MPI in a Slurm job": (
        {
            "SLURM_PROCID": "0",
            "SLURM_STEP_NUM_TASKS": "1",
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_SIZE": "6",
        },
        ("Open MPI", 5, 6),
    ),
}
ALONE = {
    "nothing": {},
    "a batch script, which is one process": {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"},
    "half of it": {"PMI_RANK": "0"},
    "the other half": {"OMPI_COMM_WORLD_SIZE": "4"},
    "not numbers": {"PMI_RANK": "", "PMI_SIZE": "four"},
    "one of each": {"PMI_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"},
}


@pytest.mark.parametrize("name", REAL)
def test_a_launcher_is_known_by_its_variables(name):
    environ, (text, rank, size) = REAL[name]
    found = launched(environ)
    assert found is not None
    assert text in found.launcher
    assert (found.rank, found.size) == (rank, size)


@pytest.mark.parametrize("name", ALONE)
def test_a_process_that_nothing_has_launched(name):
    assert launched(ALONE[name]) is None


@given(
    st.sampled_from(LAUNCHERS),
    st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))),
)
def test_every_launcher_of_the_table(launcher, place):
    rank, size = place
    assert launched({launcher.rank: str(rank), launcher.size: str(size)}) == Launch(launcher.name, rank, size)


def test_the_environment_of_this_process_is_read_if_none_is_given(monkeypatch):
    for launcher in LAUNCHERS:
        monkeypatch.delenv(launcher.rank, raising=False)
        monkeypatch.delenv(launcher.size, raising=False)
    assert launched() is None
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert launched() == Launch(launched().launcher, 1, 2)
