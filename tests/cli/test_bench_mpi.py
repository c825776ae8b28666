"""`ringcore bench` under a real mpirun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mpirun import mpirun

QUICK = """
import sys
from ringcore import registry
from ringcore.block import GenericBackend
from ringcore.cli import main
from ringcore.cli.bench import gemm
from tests.cli.defects import Raises

gemm.SIZE = 64
alone, *args = sys.argv[1:]
registry.backend_of = lambda array: Raises(position=int(alone)) if int(alone) >= 0 else GenericBackend()
sys.exit(main(["bench", "-n", "60", "--dim", "8", "-l", "2", *args]))
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_mpirun(ranks: int, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    code, text = mpirun(ranks, "-c", QUICK, "-1", "--scaling", "--mask", "full", "--json", str(path))
    assert code == 0, text
    assert text.count("bench 2 of 2: S = 60, full, forward+backward") == 1
    assert text.count(f"on {ranks} processes (" if ranks > 1 else "on 1 rank;") >= 1
    found = json.loads(path.read_text())
    assert found["ranks"] == ranks and found["passed"]
    assert (found["transport"] == "threads") == (ranks == 1)
    for one in found["rows"]:
        f = one["figures"]
        assert f["cores"] >= ranks and f["speedup"] > 0
        assert (f["overlap"] is None) == (ranks == 1)
    forward = found["rows"][0]["figures"]
    assert forward["bytes"] == ranks * (ranks - 1) * (60 // ranks) * 8 * 4 * 2 * 4, "keys and values, float32"


def test_a_rank_that_fails_alone_ends_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    code, text = mpirun(2, "-c", QUICK, "59", "--heads", "8", "--kv-heads", "2", "--json", str(path))
    assert code == 1, text
    assert "MemoryError: no room for a tile" in text and "Traceback" not in text
    assert "1 of 4 rows FAILED" in text and "3 rows not tried" in text
    assert json.loads(path.read_text())["passed"] is False


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--ranks", "2"], "ringcore: --ranks is for threads of one process."),
        (["--mask", "triangle"], "ringcore: --mask must be one of"),
        (["--json", "/no/such/x.json"], "ringcore: --json /no/such/x.json cannot be written to"),
        (["--length", "2147483647", "--heads", "4096"], " free. Take a smaller --length"),
    ],
)
def test_what_is_refused_is_said_once(args: list[str], message: str) -> None:
    code, text = mpirun(2, "-m", "ringcore", "bench", *args)
    assert code == 2, text
    assert text.count(message) == 1 and "Traceback" not in text
