"""`ringcore verify` under a real mpirun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringcore.cli.verify.cases import plan
from ringcore.cli.verify.libraries import load
from tests.mpirun import mpirun

ON_ONE_RANK = """
import sys
from ringcore import registry
from ringcore.cli import main
from tests.cli.defects import Raises

registry.backend_of = lambda array: Raises(position=int(sys.argv[1]))
sys.exit(main(["verify", *sys.argv[2:]]))
"""


@pytest.mark.parametrize(("ranks", "only", "problems"), [(1, "layout/", 6), (2, "", 41), (3, "layout/", 6)])
def test_mpirun(ranks: int, only: str, problems: int, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    args = ["--length", "20", "--dtype", "float32", "--only", only, "--json", str(path)]
    code, text = mpirun(ranks, "-m", "ringcore", "verify", *args)
    assert code == 0, text
    assert text.count(f"all {problems} problems within the bound") == 1
    assert (f"on {ranks} processes (" if ranks > 1 else "on 1 rank;") in text
    found = json.loads(path.read_text())
    assert found["ranks"] == ranks and found["problems"]["tried"] == problems
    assert (found["sent"]["bytes"] > 0) == (ranks > 1)


def test_a_rank_that_fails_alone_tells_why_and_ends_all() -> None:
    (case,) = plan([(load("numpy"), ["float32"])], 3, 20, only="shape/H-8")
    position = case.check.problem.q_layout.positions(1)[0]  # type: ignore[attr-defined]
    code, text = mpirun(
        3, "-c", ON_ONE_RANK, str(position), "--length", "20", "--only", "shape/", "--dtype", "float32"
    )
    assert code == 1, text
    assert "ringcore: numpy/shape/H-8-G-2/float32: MemoryError: no room for a tile (on rank 1)." in text
    assert text.count("1 of 1 problem FAILED: peer 1") == 1 and "7 of 8 problems were not tried" in text
    assert "Traceback" not in text


def test_what_is_refused_is_said_once() -> None:
    code, text = mpirun(2, "-m", "ringcore", "verify", "--ranks", "2")
    assert code == 2, text
    assert text.count("ringcore: --ranks is for threads of one process.") == 1 and "Traceback" not in text
