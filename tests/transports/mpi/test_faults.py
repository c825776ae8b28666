"""Contract, line 10, with processes: a rank that is gone or silent ends the others, who say which one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.mpirun import mpiexec
from tests.transports.mpi.launching import PROGRAMS, Job, launch, run, together, vendor

pytestmark = [pytest.mark.timeout(100), pytest.mark.usefixtures("_mpi")]

TIMEOUT = 2.0  # of the rings in programs/fault.py and ends.py
PERIOD = 0.5  # between questions: so old its last answer may be
LATE = 3.0  # seconds: two periods between questions, and a machine that others use, too
ENDING = 6.0  # seconds: 1 of grace, then Abort, then the launcher
AT_ONCE = 5.0  # seconds, where the ring's timeout is 60


@pytest.fixture(scope="module")
def _mpi() -> None:
    mpiexec()  # skips where there is none


def others(job: Job, culprit: int) -> list[int]:
    return [rank for rank in range(len(job.notes)) if rank != culprit]


def check_nothing_left(job: Job) -> None:
    assert not job.left
    assert not job.files


def check_aborted(job: Job, culprit: int, dead: bool = False) -> None:
    """All but one rank got an error that names that one, and ended by Abort in time; nothing is left.

    The error is a timeout; but of a dead rank MPI itself may tell, and sooner.
    """
    assert job.code is not None, job.text
    if not dead or vendor() == "mpich":  # told to let ranks live, Open MPI's launcher may forget the code
        assert job.code != 0, job.text
    fault = job.the(culprit, "fault")["at"]
    for rank in others(job, culprit):
        error = job.the(rank, "error")
        if dead and "MPI says" in error["text"]:
            assert error["type"] == "PeerFailed"
            assert f"rank {culprit} " in error["text"]
        else:
            assert (error["type"], error["peer"]) == ("PeerTimeout", culprit), error["text"]
            assert f"for rank {culprit} of {len(job.notes)}" in error["text"]
            assert error["at"] - fault > TIMEOUT - PERIOD - 0.1
        assert error["at"] - fault < TIMEOUT + LATE
        assert not job.events(rank, "finalize")
    assert job.ended - fault < TIMEOUT + LATE + ENDING
    check_nothing_left(job)


def kill_and_stop(folder: Path, *arguments: str) -> tuple[Job, Job]:
    """Two runs of programs/fault.py, and what line 10 demands of both."""
    killed, stopped = together(
        lambda: launch(folder / "kill", 3, "fault", "SIGKILL", *arguments, survive=True),
        lambda: launch(folder / "stop", 3, "fault", "SIGSTOP", *arguments),
    )
    check_aborted(killed, 2, dead=True)
    check_aborted(stopped, 2)
    return killed, stopped


@pytest.mark.parametrize(
    ("phase", "width"),
    [
        ("forward", 16),
        ("forward", 2**14),
        ("backward", 16),
        ("later", 16),
    ],  # 2^14: 16 MB, not all of which has left
)
def test_a_rank_that_is_killed_or_stopped_in_the_middle(phase, width, tmp_path):
    """Rank 2 of 3. Rank 0, to which it would have sent, names its own hop, whoever was first to miss it."""
    call, hops = ("attention", 2) if phase == "forward" else ("attention_backward", 3)
    for job in kill_and_stop(tmp_path, phase, str(width)):
        at = max(0, job.the(0, "kernels")["begun"] - 1)  # it computes at hops 0, 1, 2
        assert f"{call}, hop {at} of {hops}" in job.the(0, "error")["text"]


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_rank_whose_memory_others_read(phase, tmp_path):
    """They may go on reading, but miss it when they are to hear from it; and its memory goes with it."""
    for job in kill_and_stop(tmp_path, phase, str(2**14), "shared"):
        for rank in (0, 1):
            assert "rank 2 of 3" in job.the(rank, "error")["text"]


@pytest.mark.parametrize(("phase", "call"), [("before", "attention"), ("part", "allreduce")])
def test_a_rank_that_is_killed_or_stopped_before_a_call(phase, call, tmp_path):
    """Part: before one in a group that was split off, in which rank 0 is not."""
    for job in kill_and_stop(tmp_path, phase):
        for rank in (0, 1):
            assert call in job.the(rank, "error")["text"]


def test_what_the_silent_rank_was_last_known_to_be_at_is_told(tmp_path):
    """It has computed for a while before, and answered."""
    job = launch(tmp_path, 3, "fault", "SIGSTOP", "computing", str(2**14))
    check_aborted(job, 2)
    for rank in (0, 1):
        assert (
            "for rank 2 of 3 (attention, hop 0 of 2), which does not answer" in job.the(rank, "error")["text"]
        )


def test_a_killed_rank_where_the_launcher_ends_the_job(tmp_path):
    """As launchers do unless told otherwise; then nobody has the time to say anything."""
    job = launch(tmp_path, 3, "fault", "SIGKILL", "forward")
    assert job.code not in (0, None), job.text
    assert job.ended - job.the(2, "fault")["at"] < AT_ONCE
    assert not job.left


def test_a_rank_that_has_come_to_its_end_is_missed_and_so_is_one_that_makes_no_ring(tmp_path):
    returns, some = together(
        lambda: launch(tmp_path / "returns", 3, "ends", "returns"),
        lambda: launch(tmp_path / "some", 3, "ends", "some make a ring"),
    )
    check_aborted(returns, 1)
    assert some.code not in (0, None), some.text
    for rank in (0, 2):
        error = some.the(rank, "error")
        assert error["type"] == "PeerTimeout"
        assert "all 3 ranks of a communicator must make a ring of it" in error["text"]
        assert TIMEOUT - 0.5 < error["at"] - some.the(1, "fault")["at"] < TIMEOUT + LATE
        assert not some.events(rank, "finalize")
    check_nothing_left(some)


@pytest.mark.parametrize(
    ("how", "error", "place"),
    [
        ("raises", "KeyError", "the end of the process"),  # outside any call
        ("fails", "MemoryError", "attention, hop 0 of 2"),
        ("fails with much under way", "MemoryError", "attention, hop 0 of 2"),
        ("interrupted", "KeyboardInterrupt", "attention, hop 0 of 2"),  # by SIGINT
    ],
)
def test_a_rank_that_raises_ends_the_others_at_once(how, error, place, tmp_path):
    """They are told; no rank is dead, so that MPI ends as it should."""
    job = launch(tmp_path, 3, "ends", how, survive=True)
    assert job.code not in (0, None), job.text
    fault = job.the(1, "fault")["at"]
    assert job.the(1, "error")["type"] == error
    for rank in (0, 2):
        told = job.the(rank, "error")
        assert told["type"] == "PeerFailed"
        assert f"rank 1 of 3 has failed with {error} in {place}" in told["text"]
        assert f"rank {rank} of 3 cannot finish (" in told["text"]
        assert told["at"] - fault < AT_ONCE
    assert job.ended - fault < AT_ONCE + ENDING
    if vendor() == "mpich":  # Open MPI's launcher ends the others when the first has failed
        for rank in range(3):
            job.the(rank, "finalized")
    check_nothing_left(job)


@pytest.fixture(scope="module")
def mishaps(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """One job that has had several, and went on after each."""
    job = launch(tmp_path_factory.mktemp("mishaps"), 3, "mishaps")
    assert job.code == 0, job.text
    for rank in range(3):
        job.the(rank, "all done")
        job.the(rank, "finalized")
    check_nothing_left(job)
    return job


def test_messages_in_pieces(mishaps):
    """No mishap; but cheap here. Of 1,000 bytes, where 2^30 are usual."""
    assert all(mishaps.the(rank, "in pieces")["right"] for rank in range(3))


def test_a_rank_that_computes_for_longer_than_the_timeout_is_waited_for(mishaps):
    for rank in range(3):
        slow = mishaps.the(rank, "slow")
        assert slow["right"]
        assert slow["seconds"] >= 3.0  # three times the timeout


def test_how_long_a_kernel_takes_is_not_told_by_its_size(mishaps):
    """A little work may be another's backend, or a first compilation: who does it still answers."""
    slow = [mishaps.the(rank, "slow with little") for rank in range(3)]
    assert all(one["right"] for one in slow)
    assert slow[2]["seconds"] >= 3.0  # it waits for rank 1; rank 0 need not


def test_a_rank_that_is_suspended_for_less_than_the_timeout_is_waited_for(mishaps):
    for rank in range(3):
        suspended = mishaps.the(rank, "suspended")
        assert suspended["right"]
        assert suspended["seconds"] >= 1.2


def test_ranks_that_make_different_calls_agree_on_what_is_wrong(mishaps):
    """No rank waits for another's data: all raise the same, and the ring works on."""
    for rank in range(3):
        error = mishaps.the(rank, "disagreement")
        assert error["type"] == "ValueError"
        assert error["text"].startswith(
            "all ranks must make the same call. Rank 0 made attention, rank 1 allreduce."
        )
        assert error["at"] - mishaps.the(rank, "agree")["at"] < AT_ONCE
        assert mishaps.the(rank, "agreed")["right"]


@pytest.mark.parametrize("culprit", range(3))
def test_a_failure_breaks_the_ring_and_another_one_works(mishaps, culprit):
    name = f"in a kernel of rank {culprit}"
    fault = mishaps.the(culprit, name)
    assert (fault["type"], fault["text"]) == ("MemoryError", "no room")
    for rank in others(mishaps, culprit):
        told = mishaps.the(rank, name)
        assert told["type"] == "PeerFailed"
        assert f"rank {culprit} of 3 has failed with MemoryError in attention, hop 0 of 2" in told["text"]
        assert told["at"] - fault["at"] < AT_ONCE
    check_broken_and_mended(mishaps, name)


def test_what_a_failure_leaves_under_way_does_not_reach_the_next_ring(mishaps):
    """All fail, and each tells the others, who no longer listen. MPICH then uses the same context again."""
    for rank in range(3):
        assert mishaps.the(rank, "of all ranks")["type"] in ("MemoryError", "PeerFailed")
    check_broken_and_mended(mishaps, "of all ranks")


def check_broken_and_mended(job: Job, failure: str) -> None:
    for rank in range(3):
        broken = job.the(rank, f"after a failure {failure}")
        assert broken["type"] == "RingError"
        assert broken["text"].startswith("a ring cannot be used after a failure. It was: ")
        assert job.the(rank, f"mended after a failure {failure}")["right"]


def test_the_launcher_of_another_mpi_is_refused(tmp_path):
    """What happens then: so many jobs of one rank each. Here only that launcher's variables are there."""
    names = {"mpich": "OMPI_COMM_WORLD", "openmpi": "PMI"}[vendor()]
    env = {f"{names}_RANK": "1", f"{names}_SIZE": "4"}
    for name in ("OMPI_COMM_WORLD", "PMI"):  # of the launcher of the tests themselves
        assert not {f"{name}_RANK", f"{name}_SIZE"} & os.environ.keys()
    job = run(tmp_path, 1, [sys.executable, str(PROGRAMS / "alone.py")], 30.0, env)
    assert job.code not in (0, None), job.text
    error = job.the(0, "error")
    assert error["type"] == "RingError"
    for text in (
        "has started 4 processes",
        "each is alone: this is rank 1",
        "pip install",
        "ringcore doctor",
    ):
        assert text in error["text"]
    assert not job.left
    if vendor() == "mpich":  # Open MPI without a launcher leaves a file in /dev/shm, with or without us
        assert not job.files
