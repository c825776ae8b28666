"""`ringcore genome` under a real mpirun: the same results, one voice, and one end for all ranks."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ringcore.cli import main
from ringcore.cli.genome.lead import FILES
from tests.cli.genomes import random_bases
from tests.cli.kmers import reverse_complement
from tests.cli.test_genome_command import bed, bedgraph
from tests.mpirun import mpiexec
from tests.transports.mpi.launching import Job, run

Write = Callable[..., Path]

pytestmark = pytest.mark.timeout(100)

PIECE, REST = random_bases(120, seed=41), random_bases(600, seed=42)
RECORDS = {
    "chr1": REST[:300] + PIECE + REST[300:] + "N" + REST[50:110] + reverse_complement(PIECE) + REST[400:440],
    "plasmid": REST[100:140] + PIECE[:40] + REST[:60] + reverse_complement(PIECE[:40]),
    "one": "A",
}


@pytest.fixture(autouse=True)
def _mpi() -> None:
    mpiexec()  # skips where there is none


def start(folder: Path, ranks: int, *command: str, seconds: float = 60.0) -> Job:
    """Run ``python *command`` on so many ranks; nothing may be left of it."""
    job = run(folder / "job", ranks, [mpiexec(), "-n", str(ranks), sys.executable, *command], seconds)
    assert job.code is not None, f"hangs:\n{job.text}"
    assert not job.left
    return job


def with_fault(tmp_path: Path, fasta: Write, fault: str, at: str, *options: str) -> Job:
    path, out = str(fasta({"x": RECORDS["chr1"]})), str(tmp_path / "out")
    return start(tmp_path, 3, "-m", "tests.cli.genome_fault", fault, at, path, "--out", out, *options)


def told(job: Job) -> list[str]:
    """What the ranks, not the launcher, have said to explain the end."""
    return re.findall(r"\bringcore: (.*)$", job.text, re.MULTILINE)


# ------------------------------------------------------------------ results


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_any_number_of_processes_gives_the_same_files(fasta: Write, tmp_path: Path, ranks: int) -> None:
    path, one, many = fasta(RECORDS), tmp_path / "one", tmp_path / "many"
    assert main(["genome", str(path), "--out", str(one)]) == 0
    job = start(tmp_path, ranks, "-m", "ringcore", "genome", str(path), "--out", str(many))
    assert job.code == 0, job.text
    assert sorted(file.name for file in many.iterdir()) == sorted(FILES)
    assert (many / "repeats.bed").read_bytes() == (one / "repeats.bed").read_bytes()
    assert len(bed(one)) > 4
    bits, expected = bedgraph(many), bedgraph(one)
    assert bits.keys() == expected.keys()
    np.testing.assert_allclose(list(bits.values()), list(expected.values()), atol=2e-3)
    on, transport = ("one rank",) * 2 if ranks == 1 else (f"{ranks} ranks (MPI)", "MPI")
    assert job.text.count(f"query-key pairs on {on}: ") == 1
    assert job.text.count("attention 100 %") == job.text.count("chr1: the ") == 1
    summary = json.loads((many / "summary.json").read_text())
    assert summary["ranks"] == {"number": ranks, "transport": transport}
    assert summary["arguments"]["ranks"] is None


def test_the_number_of_processes_may_be_said(fasta: Write, tmp_path: Path) -> None:
    job = with_fault(tmp_path, fasta, "none", "0", "--ranks", "3")
    assert job.code == 0, job.text


def test_only_rank_0_reads_the_file(fasta: Write, tmp_path: Path) -> None:
    job = with_fault(tmp_path, fasta, "cannot read", "1,2")
    assert job.code == 0 and bed(tmp_path / "out")[1:], job.text


def test_the_others_wait_while_rank_0_reads_for_longer_than_their_timeout(
    fasta: Write, tmp_path: Path
) -> None:
    job = with_fault(tmp_path, fasta, "reads slowly", "0")
    assert job.code == 0 and not told(job), job.text


def test_help_is_shown_once(tmp_path: Path) -> None:
    job = start(tmp_path, 3, "-m", "ringcore", "genome", "--help")
    assert job.code == 0 and job.text.count("Score of one equal base") == 1, job.text


# ------------------------------------------------------------------ what rank 0 refuses

REFUSED: Mapping[str, tuple[list[str], str]] = {
    "missing file": (["nowhere.fa"], "nowhere.fa does not exist. Check the path."),
    "no such option": (["FASTA", "--rank", "3"], "No such option: --rank"),
    "other number of ranks": (
        ["FASTA", "--ranks", "2"],
        "--ranks must be the number of processes that were started, 3. Got 2. Leave it out.",
    ),
    "region": (["FASTA", "--region", "y:1-5"], "--region must name a record of the file."),
    "context": (["FASTA", "--context", "0"], "--context must be from 1 to 256 bases. Got 0."),
    "out is a file": (["FASTA", "--out", "FASTA"], "cannot be written to: File exists."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_said_once_and_ends_all(fasta: Write, tmp_path: Path, name: str) -> None:
    arguments, message = REFUSED[name]
    path, out = str(fasta({"x": RECORDS["chr1"]})), tmp_path / "out"
    command = [argument.replace("FASTA", path) for argument in arguments]
    job = start(tmp_path, 3, "-m", "ringcore", "genome", "--out", str(out), *command, seconds=30)
    assert job.code == 2, job.text
    (said,) = told(job)
    assert message in said and "Traceback" not in job.text
    assert not out.exists()


# ------------------------------------------------------------------ what goes wrong on one rank


class End(NamedTuple):
    """How a run ends: the exit code (None: any but 0), and the beginnings of what is said, in any order."""

    code: int | None
    said: tuple[str, ...]


LACKS = "not enough memory: Unable to allocate 1 TiB. Choose a --region"
FAULTS: Mapping[tuple[str, str], End] = {
    ("little memory", "0"): End(
        2, ("the attention would take about 2 MB of memory, of which 1 MB are free on ",)
    ),
    ("slow cores", "1"): End(2, ("the attention would take about",)),
    ("disk full", "0"): End(2, ("--out OUT cannot be written to: No space left on device.",)),
    ("no memory to read", "0"): End(2, (LACKS,)),
    ("no memory in the survey", "0"): End(2, (LACKS,)),
    ("no memory before attention", "0"): End(2, (LACKS,)),
    ("no memory after attention", "0"): End(2, (LACKS,)),
    **{
        (f"no memory {when}", "2"): End(
            2,
            (f"rank 2 of 3 has {LACKS}", "rank 0 of 3 cannot finish (", "2 of 3 has failed with MemoryError"),
        )
        for when in ("in the survey", "before attention", "after attention")
    },
    ("defect", "1"): End(None, ("rank 0 of 3 cannot finish (", "1 of 3 has failed with ZeroDivisionError")),
    ("SIGTERM", "0"): End(143, ("stopped by SIGTERM. Nothing was written.",)),
    # 130, unless rank 0 has heard of another one's end before its own signal came.
    ("SIGINT", "0,1,2"): End(None, ("Nothing was written.",)),
    ("SIGTERM", "1"): End(None, ("rank 0 of 3 cannot finish (", "rank 1 of 3 has failed with Stopped")),
    ("SIGTERM while rank 0 reads", "2"): End(
        None, ("rank 0 of 3 cannot finish (genome): rank 2 of 3 has failed",)
    ),
    ("SIGKILL", "1"): End(None, ()),
    ("SIGKILL", "0"): End(None, ()),
    ("SIGSTOP", "1"): End(2, ("has waited 2 s", "for rank 1 of 3", "Nothing was written.")),
    ("SIGSTOP", "0"): End(2, ("for rank 0 of 3", "Rank 0 may have written its files before.")),
}


@pytest.mark.parametrize(("fault", "at"), FAULTS)
def test_a_fault_on_one_rank_ends_all(fasta: Write, tmp_path: Path, fault: str, at: str) -> None:
    code, said = FAULTS[fault, at]
    begin = time.monotonic()
    job = with_fault(tmp_path, fasta, fault, at)
    assert time.monotonic() - begin < 30
    assert job.code == code or (code is None and job.code != 0), job.text
    lines = told(job)
    for text in said:
        assert any(text.replace("OUT", str(tmp_path / "out")) in line for line in lines), job.text
    if fault != "SIGKILL":  # which ends a rank before it can say anything
        # A rank without memory tells how much it wanted; a rank that was stopped may go on for a last word.
        most = 2 if (at == "2" and fault.startswith("no memory")) or (fault, at) == ("SIGSTOP", "0") else 1
        assert 1 <= len(lines) <= most, job.text
    assert job.text.count("Traceback (most") == (fault == "defect"), job.text
    if fault == "SIGKILL" or (fault, at) == ("SIGSTOP", "0"):  # rank 0 could not remove the folder
        assert not any((tmp_path / "out").glob("*"))
    else:
        assert not (tmp_path / "out").exists()
