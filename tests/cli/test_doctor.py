"""The command as people use it: a report for people or programs, an exit code, whatever is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringcore.cli import main
from ringcore.cli.doctor import command, software
from ringcore.cli.doctor.finding import Finding
from tests.cli import fake_mpi

HEAVY = ("jax", "jaxlib", "torch", "cupy", "numba", "scipy", "array_api_strict", "hypothesis", "mpi4py")
OPTIONAL = (*HEAVY, "ml_dtypes")
SECTIONS = ["ringcore", "Python", "Array libraries", "BLAS", "Extras", "MPI", "Cores"]


def hide(monkeypatch: pytest.MonkeyPatch, names: Container[str]) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name in names else real(name))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No launcher, no mpirun in PATH, no MPI, sound or not, none of the user's variables."""
    for name in set(os.environ) - set(fake_mpi.clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    hide(monkeypatch, {"mpi4py"})


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that has none of the optional packages."""
    hide(monkeypatch, OPTIONAL)


def report(capsys: pytest.CaptureFixture[str]) -> Any:
    code = main(["doctor", "--json"])
    shown = capsys.readouterr()
    assert shown.err == ""
    return code, json.loads(shown.out, parse_constant=pytest.fail)


def test_every_section_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, content = report(capsys)
    assert list(dict.fromkeys(x["section"] for x in content["findings"])) == SECTIONS
    assert code == 0 and content["ok"] is True


def test_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    _, content = report(capsys)
    assert content.keys() == {"ringcore", "ok", "findings", "ranks"}
    for finding in content["findings"]:
        assert finding.keys() == {"section", "name", "value", "status", "cure"}
        assert all(isinstance(finding[key], str) for key in ("section", "name", "value"))
        assert finding["status"] in ("ok", "note", "warning", "problem")
        assert finding["cure"] is None or finding["cure"]
    (rank,) = content["ranks"]
    assert rank["rank"] == 0 and rank["error"] is None
    assert rank["python"] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.usefixtures("bare")
def test_what_is_missing_comes_with_the_line_that_brings_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, content = report(capsys)
    assert code == 0 and content["ok"] is True
    found = {x["name"]: x for x in content["findings"]}
    for name in OPTIONAL:
        if name != "jaxlib":  # comes with jax
            assert found[name]["status"] == "note" and found[name]["value"].startswith("not installed"), name
            assert "pip install " in found[name]["cure"], name
    assert found["cores per rank"]["value"].isdecimal()


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_it_fits_on_the_screen(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = Finding(
        "Extras", "a name that is longer than its column", "word " * 40, "problem", "pip install " * 20
    )
    monkeypatch.setattr(command, "LOCAL", (*command.LOCAL, ("Extras", lambda: iter([long]))))
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= min(80, int(columns))
    assert all(line == line.rstrip() for line in lines)
    for text in (*SECTIONS, "    -> pip install numpy", "note: not installed", "problem: word word"):
        assert any(text in line for line in lines) or text == "    -> pip install numpy"
    assert lines[-1].startswith("1 problem: Extras, a name that is longer")


def test_pip_lines_can_be_pasted(capsys: pytest.CaptureFixture[str], bare: None) -> None:
    main(["doctor"])
    lines = [line.strip().removeprefix("-> ") for line in capsys.readouterr().out.splitlines()]
    for package in (*software.ARRAYS, *software.EXTRAS):
        if package.module in OPTIONAL:
            assert package.cure in lines
    assert "pip install --no-cache-dir --force-reinstall --no-binary mpi4py mpi4py" in lines


def test_a_probe_that_fails_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bad() -> Iterator[Finding]:
        yield Finding("BLAS", "before", "1")
        raise ZeroDivisionError("no\nthreads")

    monkeypatch.setattr(command, "LOCAL", (("BLAS", bad), *command.LOCAL))
    monkeypatch.setattr(command.cores, "node", bad)
    code, content = report(capsys)
    failed = [x for x in content["findings"] if x["name"] == "bad"]
    assert [x["section"] for x in failed] == ["BLAS", "Cores"]
    assert {x["value"] for x in failed} == {"could not be found out: ZeroDivisionError: no"}
    assert {x["status"] for x in failed} == {"warning"} and code == 0
    assert {"before", "numpy", "cores per rank"} <= {x["name"] for x in content["findings"]}


def test_facts_that_cannot_be_had_are_a_problem_not_a_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.ranks.blas, "kernels", lambda: 1 / 0)
    code, content = report(capsys)
    assert code == 1 and content["ok"] is False
    (problem,) = (x for x in content["findings"] if x["status"] == "problem")
    assert problem["section"] == "Ranks" and "ZeroDivisionError" in problem["value"]


def test_kernels_that_the_environment_forces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    code, content = report(capsys)
    found = {x["name"]: x for x in content["findings"]}
    assert found["OPENBLAS_CORETYPE"]["status"] == "warning"
    assert found["OPENBLAS_CORETYPE"]["cure"] == "unset OPENBLAS_CORETYPE"
    assert found["OMP_NUM_THREADS"]["value"] == "3" and code == 0


def test_nothing_heavy_is_imported_and_mpi_is_not_started_here(tmp_path: Path) -> None:
    script = (
        "import sys; from ringcore.cli import main; assert main(['doctor']) == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    path = os.pathsep.join([str(fake_mpi.install(tmp_path, fake_mpi.MPICH)), *fake_mpi.ROOTS])
    environment = fake_mpi.clean_environment() | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "MPICH Version: 5.0.2" in done.stdout and done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("launched", [True, False])
def test_no_colours_under_a_launcher_which_feigns_a_terminal(
    launched: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    if launched:
        monkeypatch.setenv("PMI_RANK", "0")
        monkeypatch.setenv("PMI_SIZE", "1")
    main(["doctor"])
    assert ("\x1b[" in capsys.readouterr().out) is not launched


def test_a_hostile_value_is_shown_and_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1\x1b[2J[bold]")
    main(["doctor"])
    assert "1\\x1b[2J[bold]" in capsys.readouterr().out
