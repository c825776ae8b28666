"""Kernels on disk: compiled once on a machine, by one of all who come; anew when a source has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.backends.both import need_compiled

need_compiled()

ROOT = Path(__file__).parents[3]
ROOTS = [ROOT, ROOT / "backends", ROOT / "transports"]

HEAD = """
import sys, time
sys.path[:0] = eval(sys.argv[1])
import numpy as np
"""
ATTENTION = (
    HEAD
    + """
import ringcore as rc
from ringcore_numpy import NumpyBackend
x = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
begin = time.process_time()
out = rc.attention(x, x, x, mask=rc.causal(), backend=NumpyBackend(compiled=True))
print(time.process_time() - begin, out.tobytes().hex())
"""
)
TOY = """
from ringcore_numpy.compiled.kernel import Kernel

def sums(x, out):
    for i in range(x.shape[0]):
        out[i] = 0
        for j in range(x.shape[1]):
            out[i] += x[i, j]

kernel = Kernel(sums)
"""
RUN_TOY = (
    HEAD
    + """
from toy import kernel
for kind in ("float32", "float64"):
    x, out = np.arange(6, dtype=kind).reshape(2, 3), np.empty(2, kind)
    x.flags.writeable = False
    kernel.of(kind, x, out)(x, out)
    kernel.of(kind, x.T, out)(x[:, ::2], out)
    print(out.tolist())
"""
)


class Ended(NamedTuple):
    saved: int  # kernels written to disk
    loaded: int  # and read
    said: str


def start(program: str, roots: list[Path], **variables: str) -> subprocess.Popen[str]:
    """A process that tells what numba writes to its cache and reads from it."""
    environment = {**os.environ, "NUMBA_DEBUG_CACHE": "1", **variables}
    return subprocess.Popen(
        [sys.executable, "-c", program, repr([str(x) for x in roots])],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(process: subprocess.Popen[str]) -> Ended:
    try:
        out, errors = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    lines = out.splitlines()
    said = [line for line in lines if not line.startswith("[cache]")]
    saved, loaded = (
        sum(line.startswith(f"[cache] data {what}") for line in lines) for what in ("saved", "loaded")
    )
    return Ended(saved, loaded, "\n".join(said))


def test_one_of_four_processes_compiles_and_a_later_one_compiles_nothing(tmp_path: Path) -> None:
    where = {"NUMBA_CACHE_DIR": str(tmp_path)}
    ended = [end(x) for x in [start(ATTENTION, ROOTS, **where) for _ in range(4)]]
    assert sum(x.saved for x in ended) == 1, ended
    assert sum(x.loaded for x in ended) == 3, ended
    later = end(start(ATTENTION, ROOTS, **where))
    assert (later.saved, later.loaded) == (0, 1)
    times, results = zip(*(x.said.split() for x in (*ended, later)), strict=True)
    assert len(set(results)) == 1
    assert float(times[-1]) < max(map(float, times)) / 3, "CPU seconds"


@pytest.fixture
def toy(tmp_path: Path) -> list[Path]:
    """Roots with a kernel that is compiled in no time, and a copy of the backend that may be changed."""
    shutil.copytree(ROOT / "backends", tmp_path / "backends", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    return [tmp_path, ROOT, tmp_path / "backends", ROOT / "transports"]


SUMS = "[2.0, 8.0]\n[2.0, 8.0]"  # of the outer two columns


def test_a_change_of_any_source_leads_to_new_files(toy: list[Path], tmp_path: Path) -> None:
    def run() -> Ended:
        return end(start(RUN_TOY, toy, NUMBA_CACHE_DIR=str(tmp_path / "cache")))

    assert run() == (2, 0, SUMS)
    assert run() == (0, 2, SUMS)
    before = set((tmp_path / "cache").rglob("*.nbi"))
    with (tmp_path / "backends/ringcore_numpy/compiled/rows.py").open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    assert run() == (2, 0, SUMS)
    assert run() == (0, 2, SUMS)
    assert len(set((tmp_path / "cache").rglob("*.nbi")) - before) == 2, "beside those of the other version"


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_file_is_written_anew(toy: list[Path], tmp_path: Path, ending: str) -> None:
    """As a full disk or a power cut leaves it behind: empty."""

    def run() -> Ended:
        return end(start(RUN_TOY, toy, NUMBA_CACHE_DIR=str(tmp_path / "cache")))

    assert run() == (2, 0, SUMS)
    for path in (tmp_path / "cache").rglob(f"*float32*.{ending}"):
        path.write_bytes(b"")
    assert run().said == SUMS, "compiled, and the damaged file is gone"
    assert run() == (1, 1, SUMS)
    assert run() == (0, 2, SUMS)


def test_a_full_disk_costs_only_the_file(toy: list[Path], tmp_path: Path) -> None:
    program = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n" + RUN_TOY
    for _ in range(2):
        assert end(start(program, toy, NUMBA_CACHE_DIR=str(tmp_path / "cache"))).said == SUMS


def test_where_nothing_can_be_written_each_process_compiles(toy: list[Path], tmp_path: Path) -> None:
    """Neither where the caller says, nor beside the source, nor at home."""
    nowhere = {"NUMBA_CACHE_DIR": "/dev/null/x", "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/x"}
    (tmp_path / "__pycache__").write_text("no folder")
    for _ in range(2):
        assert end(start(RUN_TOY, toy, **nowhere, PYTHONDONTWRITEBYTECODE="1")) == (0, 0, SUMS)


def test_where_the_lock_cannot_be_had_each_process_does_it_for_itself(
    toy: list[Path], tmp_path: Path
) -> None:
    """A folder in place of the file with the lock: opening it fails, as on a file system without locks."""
    (tmp_path / "__pycache__" / "ringcore-kernels.txt").mkdir(parents=True)
    assert end(start(RUN_TOY, toy)) == (2, 0, SUMS)
    assert end(start(RUN_TOY, toy)) == (0, 2, SUMS)


THREADS = (
    HEAD
    + """
import ringcore as rc
sys.setswitchinterval(1e-5)

def on_rank(ring):
    x = np.ones((2, 9, 4), ("float32", "float64")[ring.rank % 2])
    for _ in range(20):
        out, pullback = rc.attention_vjp(x, x, x, mask=rc.causal())
        assert all(np.isfinite(y).all() for y in (out, *pullback(out)))

rc.run_ranks(5, on_rank)
print("fine")
"""
)


def test_threads_whose_first_calls_meet() -> None:
    """Ranks of `run_ranks`: they load the same kernels, and others, while some already compute."""
    for _ in range(2):
        assert end(start(THREADS, ROOTS)).said == "fine"
