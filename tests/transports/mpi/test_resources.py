"""What an MPI job holds: nothing more after a thousand calls, and half as much memory on twice the ranks."""

from __future__ import annotations

import pytest

from tests.mpirun import mpiexec
from tests.transports.mpi.launching import Job, launch, vendor

pytestmark = [pytest.mark.timeout(150), pytest.mark.usefixtures("_mpi")]

# Between the first fifth of the calls and the last one. Python's blocks (an object is one or two) vary by a
# hundred: one kept in each of 800 calls is seen. Memory comes in pages and arenas; 1 MiB would be 1.3 kB for
# each call. Everything else is counted one by one; files may become fewer.
MOST = {"blocks": 400, "rss": 2**20, "handles": 0, "threads": 0, "mapped": 0, "files": 0}

GROWING = ("attention", "shared")
"""Not kept yet: the C heap grows by 0.3 to 1.4 kB a call; blocks, handles and mappings do not."""


@pytest.fixture(scope="module")
def _mpi() -> None:
    mpiexec()  # skips where there is none


def calls(what: str) -> int:
    """MPICH has room for some 2,000 communicators: one that is kept would soon be one too many.

    Open MPI has more, and takes ten times as long to make one.
    """
    return 1000 if what in ("attention", "shared", "letters") else 2200 if vendor() == "mpich" else 200


@pytest.mark.parametrize("what", ["attention", "shared", "letters", "split", "duplicate"])
def test_the_same_calls_again_and_again_leave_nothing_behind(what, tmp_path):
    (tmp_path / "t").mkdir()
    job = launch(
        tmp_path, 2, "loop", what, str(calls(what)), seconds=120, env={"TMPDIR": str(tmp_path / "t")}
    )
    assert job.code == 0, job.text
    assert not job.left
    assert not job.files
    for rank in range(2):
        before, after = job.events(rank, "holds")
        growth = {name: after[name] - before[name] for name in MOST}
        print(f"{what}, rank {rank}: {growth}")
        job.the(rank, "finalized")
        too_much = [name for name, most in MOST.items() if growth[name] > most]
        if too_much == ["rss"] and what in GROWING:
            pytest.xfail(
                f"resident memory grows with the calls: {growth['rss']} bytes in four fifths of them"
            )
        assert not too_much, growth


def peaks(folder, ranks: int, key_heads: int = 4) -> Job:
    """Every block visits every rank; S = 16,384, H = 4, D = 128, float32."""
    job = launch(
        folder / str(ranks),
        ranks,
        "memory",
        "16384",
        str(key_heads),
        seconds=100,
        # What is freed goes back at once; else the C library keeps arrays of up to 32 MiB for later.
        env={"MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    assert job.code == 0, job.text
    return job


def worst(job: Job, what: str) -> int:
    """Bytes above an idle process, on the rank that took most."""
    found = max(note[what] for rank in range(len(job.notes)) for note in job.events(rank, "peak"))
    shard = job.the(0, "peak")["shard"]
    print(f"P={len(job.notes)}: {what} {found / 2**20:.0f} MiB, {found / shard:.1f} shards of one array")
    return found


def test_twice_the_ranks_take_half_the_memory(tmp_path):
    """Forward. Backward takes half on 4 ranks or more, see below: on the single hop of 2 no sum is under way.

    On 4 ranks three are, of dq, a shard each: as one arrives, the next is computed and the last one goes on.
    """
    two, four = peaks(tmp_path, 2), peaks(tmp_path, 4)
    assert worst(four, "forward") <= 0.55 * worst(two, "forward")
    shard = four.the(0, "peak")["shard"]
    assert worst(four, "both") <= 0.5 * worst(two, "both") + 3.5 * shard


@pytest.mark.xfail(strict=True, reason="0.59: three shards of dq are under way on 4 ranks, none on 2")
def test_twice_the_ranks_take_half_the_memory_forward_and_backward(tmp_path):
    """The contract's line 12, which 2 ranks against 4 do not keep yet."""
    two, four = peaks(tmp_path, 2), peaks(tmp_path, 4)
    assert worst(four, "both") <= 0.55 * worst(two, "both")


@pytest.mark.slow
def test_twice_the_ranks_take_half_the_memory_backward_too(tmp_path):
    four, eight = peaks(tmp_path, 4), peaks(tmp_path, 8)
    assert worst(eight, "forward") <= 0.55 * worst(four, "forward")
    assert worst(eight, "both") <= 0.55 * worst(four, "both")
