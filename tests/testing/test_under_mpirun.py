"""The pytest plug-in under mpirun, as a user's tests see it: each test here starts processes."""

from __future__ import annotations

import json
import re
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.mpirun import ROOT, mpirun

# Each rank writes down how its pytest ended: mpiexec tells only one exit code.
PYTEST = """
import os, sys, pytest
code = pytest.main(sys.argv[1:])
rank = next(os.environ[name] for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
with open(f"code-{rank}", "w") as file:
    file.write(str(int(code)))
sys.exit(code)
"""


class Run:
    """One pytest under mpirun: what it printed, its counts, the exit codes of its ranks."""

    def __init__(self, folder: Path, ranks: int, *args: str, timeout: float = 60.0) -> None:
        plugin = ["-p", "ringcore.testing.plugin", "-p", "no:ringcore", "--hypothesis-profile=default"]
        begin = time.monotonic()
        ended = mpirun(
            ranks, "-c", PYTEST, *plugin, *args, timeout=timeout, cwd=folder, env={"COLUMNS": "150"}
        )
        self.seconds = time.monotonic() - begin
        self.text = re.sub(r"\x1b\[[0-9;]*m", "", ended.text)
        assert ended.code is not None, self.text
        self.codes = [int(p.read_text()) for r in range(ranks) if (p := folder / f"code-{r}").exists()]
        last = re.findall(r"^=+ (.* in [0-9.]+s.*) =+$", self.text, re.MULTILINE)
        self.counts = (
            {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) ([a-z]+)", last[-1])} if last else {}
        )

    def __repr__(self) -> str:
        return self.text

    def section(self, name: str) -> str:
        """What is printed on the failure of one test."""
        (text,) = re.findall(rf"^_+ (?:ERROR at \w+ of )?{name} _+$(.*?)^[_=]{{5,}}", self.text, re.M | re.S)
        return text


@pytest.fixture
def run(tmp_path):
    def run(source, *args, ranks=2, files=None, **options):
        for name, text in {"test_it.py": source, **(files or {})}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        return Run(tmp_path, ranks, *args, **options)

    return run


# ------------------------------------------------------------------ one verdict

VERDICTS = """
import os, time
import numpy as np, pytest, ringcore as rc
from hypothesis import given, strategies as st

RANK = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))

def test_together(ring):
    from mpi4py import MPI
    assert (ring.rank, ring.size) == (MPI.COMM_WORLD.rank, 3)
    assert ring.timeout == 20
    assert ring.allreduce(np.array(1)) == 3

def test_one_fails(ring):
    print("said on", ring.rank)
    value = 3
    assert ring.rank != 1 or value == 4, "unwell"

def test_one_leaves_between_two_calls(ring):
    ring.allreduce(np.array(1))
    assert ring.rank != 2, "left early"
    ring.allreduce(np.array(1))

def test_one_leaves_while_others_finish(ring):
    ring.allreduce(np.array(1))
    if ring.rank == 0:
        raise KeyError("gone")

def test_all_fail(ring):
    assert ring.size == 4

def test_they_differ(ring):
    raise [ValueError("nought"), KeyError("one"), KeyError("one")][ring.rank]

def test_the_ring_still_works(ring):
    x = np.arange(6.0).reshape(3, 2) + ring.rank
    assert rc.attention(x, x, x, ring=ring).shape == (3, 2)

def test_without_the_ring():
    assert RANK != 2

def test_all_skip(ring):
    pytest.skip("no such thing here")

def test_one_skips(ring):
    if ring.rank == 1:
        pytest.skip("alone")

@pytest.mark.xfail(raises=ZeroDivisionError, strict=True)
def test_one_fails_as_expected(ring):
    assert ring.rank != 1 or 1 / 0

@pytest.mark.xfail(strict=True)
def test_passes_unexpectedly(ring):
    pass

@pytest.mark.ranks(1, 2, 3)
def test_marked(ring):
    assert ring.size == 3

@pytest.mark.ranks(2)
def test_for_two(ring):
    assert False

@pytest.fixture
def half(ring):
    total = int(ring.allreduce(np.array(1)))
    assert ring.rank != 1, "no half"
    ring.allreduce(np.array(1))
    yield total // 2

def test_a_fixture_fails(half):
    pass

@pytest.fixture
def late(ring):
    yield
    assert ring.rank != 2, "too late"

def test_a_teardown_fails(late):
    pass

def test_the_fixture_ranks(ranks):
    assert ranks(3, lambda ring, x: ring.rank + x, 10) == [10, 11, 12]
    with pytest.raises(ZeroDivisionError) as caught:
        ranks(3, lambda ring: 1 / (ring.rank - 1))
    assert caught.value.__notes__ == ["on rank 1 of 3"]
    assert ranks(3, lambda ring: int(ring.allreduce(np.array(1)))) == [3, 3, 3]

def test_too_many_ranks(ranks):
    ranks(2, print)

def test_what_is_written(ring, pytestconfig, record_property):
    time.sleep(0.1 * ring.rank)
    pytestconfig.cache.set("rank", ring.rank)
    record_property("rank", ring.rank)
"""
# The other ranks would be the last to write.
LAST = """
import os, time
RANK = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))
def pytest_sessionfinish():
    time.sleep(0.2 * RANK)
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdicts")
    (folder / "test_it.py").write_text(VERDICTS, encoding="utf-8")
    (folder / "conftest.py").write_text(LAST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nring_timeout = 20\n", encoding="utf-8")
    return Run(folder, 3, "-rfEsx", "--junitxml=report.xml", "-o", "junit_family=xunit1"), folder


def test_all_ranks_pass_fail_and_skip_together(verdicts):
    run, _ = verdicts
    want = {"failed": 8, "passed": 6, "skipped": 2, "deselected": 3, "xfailed": 1, "error": 2}
    assert run.counts == want, run
    assert run.codes == [1, 1, 1]


def test_rank_0_prints_for_all(verdicts):
    run, _ = verdicts
    assert run.text.count("test session starts") == 1
    assert run.text.count("short test summary") == 1
    assert "ringcore: 3 ranks, started by " in run.text
    assert "ringcore: deselected, as they are for other numbers of ranks: 3" in run.text


@pytest.mark.parametrize(
    ("test", "where", "text"),
    [
        ("test_one_fails", "[on rank 1 of 3]", 'assert ring.rank != 1 or value == 4, "unwell"'),
        ("test_one_leaves_between_two_calls", "[on rank 2 of 3]", "AssertionError: left early"),
        ("test_one_leaves_while_others_finish", "[on rank 0 of 3]", "KeyError: 'gone'"),
        ("test_all_fail", "[on rank 0-2 of 3]", "assert 3 == 4"),
        ("test_they_differ", "[on rank 1, 2 of 3]", "KeyError: 'one'"),
        ("test_they_differ", "[on rank 0 of 3]", "ValueError: nought"),
        ("test_without_the_ring", "[on rank 2 of 3]", "assert 2 != 2"),
        ("test_one_skips", "Rank 1 of 3 skipped it (alone), rank 0 did not", "must skip a test alike"),
        ("test_passes_unexpectedly", "", "[XPASS(strict)]"),
        ("test_a_fixture_fails", "[on rank 1 of 3]", "AssertionError: no half"),
        ("test_a_teardown_fails", "[on rank 2 of 3]", "AssertionError: too late"),
    ],
)
def test_a_failure_shows_the_traceback_of_the_rank_where_it_happened(verdicts, test, where, text):
    section = verdicts[0].section(test)
    assert where in section
    assert text in section
    assert "must make the same call" not in section, "those who only followed are not shown"


def test_a_failure_shows_what_that_rank_has_printed(verdicts):
    section = verdicts[0].section("test_one_fails")
    assert "Captured stdout call on rank 1" in section
    assert "said on 1" in section
    assert "said on 0" not in section


def test_the_summary_names_rank_and_error(verdicts):
    assert "FAILED test_it.py::test_one_fails - rank 1: AssertionError: unwell" in verdicts[0].text
    assert "ranks(2, ...) must have 2 processes under mpirun. Got 3." in verdicts[0].text


def test_one_rank_writes_the_files(verdicts):
    run, folder = verdicts
    (suite,) = ET.parse(folder / "report.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("8", "2"), run
    assert [found.get("value") for found in suite.iter("property")] == ["0"]
    cache = folder / ".pytest_cache" / "v"
    assert len(json.loads((cache / "cache" / "lastfailed").read_text(encoding="utf-8"))) == 10
    assert json.loads((cache / "rank").read_text(encoding="utf-8")) == 0


# ------------------------------------------------------------------ properties

PROPERTIES = """
import time
import numpy as np, pytest
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(max_examples=30)
@given(n=st.integers(0, 10**9))
def test_same(ring, tmp_path_factory, n):
    with open(f"drawn-{ring.rank}", "a") as file:
        file.write(f"{n} ")
    assert ring.allreduce(np.array(n)) == 2 * n

class TestMethods:
    @given(n=st.integers(0, 10000))
    def test_shrinks(self, ring, tmp_path_factory, n):
        ring.allreduce(np.array(n))
        assert ring.rank != 1 or n < 17, "too large"
        ring.allreduce(np.array(n))

@pytest.fixture(scope="session")
def by_rank(ring):
    return ring.rank

@settings(max_examples=2)
@given(n=st.integers())
def test_slow_on_one_rank(ring, by_rank, n):
    # beyond the deadline that hypothesis has by default
    if by_rank == 1:
        time.sleep(0.3)
    ring.allreduce(np.array(1))

@pytest.mark.usefixtures("ring")
@given(n=st.integers(0, 10**9))
def test_a_property_of_plain_mpi(n):
    from mpi4py import MPI
    assert MPI.COMM_WORLD.allgather(n) == [n, n]

@given(data=st.data())
def test_draws_by_rank(ring, data):
    if ring.rank == 0:
        data.draw(st.integers())
    data.draw(st.integers())

def test_settings_are_restored():
    assert test_same._hypothesis_internal_use_settings.deadline is not None
    assert test_same._hypothesis_internal_use_settings.max_examples == 30
"""


def test_properties_draw_fail_and_shrink_in_step(run, tmp_path):
    first = run(PROPERTIES, "-p", "no:cacheprovider", "-k", "not by_rank")
    assert first.counts == {"failed": 1, "passed": 4, "deselected": 1}, first
    section = first.section("TestMethods.test_shrinks")
    assert "[on rank 1 of 2]" in section
    assert "AssertionError: too large" in section
    assert "n=17," in section
    drawn = [(tmp_path / f"drawn-{rank}").read_text().split() for rank in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 30

    (seed,) = re.findall(r"hypothesis draws the same on all ranks: (--hypothesis-seed=\d+)", first.text)
    again = run(PROPERTIES, "-p", "no:cacheprovider", "-k", "test_same", seed)
    assert again.counts == {"passed": 1, "deselected": 5}, again
    assert (tmp_path / "drawn-0").read_text().split() == 2 * drawn[0]


def test_draws_that_depend_on_the_rank_are_an_error(run):
    ended = run(PROPERTIES, "-k", "by_rank")
    assert ended.counts == {"failed": 1, "deselected": 5}, ended
    assert "rank 1 has drawn otherwise than rank 0" in ended.section("test_draws_by_rank")
    assert ended.codes == [1, 1]


# ------------------------------------------------------------------ the same tests


def test_the_first_failure_can_end_all_and_be_repeated(run):
    source = """
def test_a(ring): pass
def test_b(ring): assert ring.rank != 1
def test_c(ring): pass
"""
    ended = run(source, "-x")
    assert ended.counts == {"failed": 1, "passed": 1}, ended
    assert ended.codes == [1, 1]
    ended = run(source, "--lf")
    assert ended.counts == {"failed": 1}, ended
    assert ended.codes == [1, 1]


BY_RANK = 'import os\nRANK = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")))\n'


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            "@pytest.mark.parametrize('n', [RANK])\ndef test_b(ring, n): pass",
            "test_b[0] where rank 1 of 2 has test_it.py::test_b[1]",
        ),
        (
            "if RANK == 1:\n    def test_b(ring): pass",
            "Rank 0 has nothing where rank 1 of 2 has test_it.py::test_b",
        ),
    ],
    ids=["other", "more"],
)
def test_other_tests_on_another_rank_are_an_error(run, change, text):
    ended = run(f"{BY_RANK}import pytest\ndef test_a(ring): assert False\n{change}\n")
    assert text in ended.text.replace("\n", " "), ended
    assert ended.text.count("ERROR: all ranks must collect the same tests") == 1
    assert ended.codes == [4, 4]


def test_a_file_that_one_rank_cannot_load_is_an_error(run):
    files = {"test_other.py": f"{BY_RANK}assert RANK != 1, 'not here'\ndef test_a(): pass\n"}
    ended = run("def test_a(ring): pass", files=files)
    assert "ERROR: all ranks must collect the same tests. On rank 1 of 2 this failed:" in ended.text
    assert "AssertionError: not here" in ended.text
    assert ended.codes == [4, 4]


@pytest.mark.slow
def test_the_only_file_that_one_rank_cannot_load_ends_all(run):
    """That rank never starts MPI. Open MPI's launcher then ends the others; MPICH's does not."""
    ended = run(f"{BY_RANK}assert RANK != 1, 'not here'\ndef test_a(ring): pass\n", timeout=100)
    assert "AssertionError: not here" in ended.text
    assert ended.seconds < 90


# ------------------------------------------------------------------ when it goes wrong

BREAKS = """
import time
import numpy as np, pytest, ringcore as rc
from ringcore.block import GenericBackend

class Fails(GenericBackend):
    def attend(self, *args, **kwargs):
        raise MemoryError("no room")

def test_before(ring):
    assert ring.allreduce(np.array(1)) == ring.size

def test_breaks(ring):
    x = np.ones((3, 2))
    rc.attention(x, x, x, ring=ring, backend=Fails() if ring.rank == 1 else GenericBackend())

def test_after(ring):
    assert ring.allreduce(np.array(1)) == ring.size

def test_without():
    pass
"""


def test_after_the_ring_has_broken_its_tests_fail_at_once(run):
    ended = run(BREAKS, ranks=3, timeout=40)
    assert ended.counts == {"failed": 1, "error": 1, "passed": 2}, ended
    section = ended.section("test_breaks")
    assert "[on rank 1 of 3]" in section
    assert "MemoryError: no room" in section
    assert "The ring cannot be used any more. It broke in test_it.py::test_breaks" in ended.section(
        "test_after"
    )
    assert "MemoryError in attention" in ended.section("test_after")


SILENT = """
import time
import numpy as np, pytest

def test_hangs(ring):
    if ring.rank == 1:
        time.sleep(60)
    ring.allreduce(np.array(1))

def test_after(ring): pass
"""


def test_a_rank_that_hangs_ends_the_run_with_its_name(run, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nring_timeout = 4\n", encoding="utf-8")
    ended = run(SILENT, ranks=3, timeout=40)
    assert ended.seconds < 35
    assert "PeerTimeout" in ended.text, ended
    assert re.search(r"has waited 4 s .*rank 1 of 3", ended.text), ended
    assert "FAILED test_it.py::test_hangs - The ranks have lost each other" in ended.text


def test_a_slow_rank_costs_the_ring_but_not_the_run(run, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nring_timeout = 4\n", encoding="utf-8")
    source = SILENT.replace("60", "6") + "\ndef test_without(): pass\n"
    ended = run(source, timeout=40)
    assert ended.counts == {"failed": 1, "error": 1, "passed": 1}, ended
    assert re.search(r"has waited 4 s .*rank 1 of 2", ended.section("test_hangs")), ended
    assert "It broke in test_it.py::test_hangs: PeerTimeout: " in ended.section("test_after")


DIES = """
import os, numpy as np

def test_dies(ring):
    if ring.rank == 1:
        {end}
    ring.allreduce(np.array(1))
"""


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_rank_that_dies_ends_the_run(run, end):
    ended = run(DIES.format(end=end), timeout=40)
    assert ended.seconds < 25
    assert "passed" not in ended.counts


LEAVES = """
import pytest

def test_exit(ring):
    if ring.rank == 1:
        pytest.exit("enough", returncode=7)

def test_after(ring): pass
"""


def test_a_rank_that_ends_its_session_keeps_nobody_waiting(run):
    ended = run(LEAVES, timeout=40)
    assert ended.seconds < 25
    assert "the end of its session (exit code 7)" in ended.text, ended
    assert ended.codes[1] == 7
    assert ended.codes[0] != 0


# ------------------------------------------------------------------ where it keeps out


def test_tests_without_the_fixtures_are_left_alone(run):
    source = (
        f"{BY_RANK}import sys\ndef test_a():\n    assert 'mpi4py' not in sys.modules\n    assert RANK == 0\n"
    )
    ended = run(source)
    assert ended.text.count("test session starts") == 2
    assert sorted(ended.codes) == [0, 1]


def test_a_fixture_of_the_same_name_is_not_ours(run):
    source = """
import pytest, sys

@pytest.fixture
def ring(): return "gold"

def test_a(ring): assert "mpi4py" not in sys.modules
"""
    ended = run(source)
    assert ended.codes == [0, 0], ended


def test_another_ring_can_take_the_place_of_the_fixture(run):
    source = """
import numpy as np, pytest, ringcore as rc

@pytest.fixture(scope="session")
def ring(ring):
    with ring.split(color=ring.rank // 2) as part:
        yield part

def test_a(ring):
    assert ring.size == 2
    assert ring.allreduce(np.array(1)) == 2
"""
    ended = run(source, ranks=4)
    assert ended.counts == {"passed": 1}, ended
    assert ended.codes == [0, 0, 0, 0]


def test_collecting_only_prints_once(run):
    ended = run("def test_a(ring): pass", "--collect-only", "-q")
    assert ended.text.count("test_it.py::test_a") == 1
    assert ended.codes == [0, 0]


def test_one_process_has_threads_for_the_other_ranks(run):
    source = """
import numpy as np, pytest

@pytest.mark.ranks(1, 3)
def test_a(ring):
    assert type(ring.transport).__name__ == {1: "MpiTransport", 3: "ThreadTransport"}[ring.size]
    assert ring.allreduce(np.array(1)) == ring.size

def test_b(ranks):
    assert ranks(2, lambda ring: ring.rank) == [0, 1]
"""
    ended = run(source, ranks=1)
    assert ended.counts == {"passed": 3}, ended


def test_the_environment_for_launchers_is_data():
    assert (ROOT / ".ci" / "mpi.env").exists()
