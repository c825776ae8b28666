"""`ringcore verify` as people use it: a table, a verdict, an exit code, a file."""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_compat.numpy
import pytest

import ringcore as rc
from ringcore import registry, testing
from ringcore.cli import main
from ringcore.cli.errors import InputError
from ringcore.cli.stop import Stopped
from ringcore.cli.verify import command, libraries, record
from tests.cli import defects

Out = pytest.CaptureFixture[str]
NAMES = {"array_api_compat": array_api_compat, "Layout": rc.Layout} | {
    name: getattr(testing, name) for name in ("And", "Call", "DenseBits", "DrawnMask", "Not", "Or", "Problem")
}
"""What a line that shows a problem is made of."""
FAST = ["--ranks", "2", "--length", "20"]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Give attention other kernels than the library's own."""
    return lambda backend: monkeypatch.setattr(registry, "backend_of", lambda array: backend)


def verify(*args: str) -> int:
    return main(["verify", *FAST, *args])


def words(text: str) -> str:
    return " ".join(text.split())


# ------------------------------------------------------------------ it passes


def test_all_is_well(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["verify", "--quick", "--ranks", "3"]) == 0
    shown = capsys.readouterr()
    for text in (
        "attention: worst error in units of u cond, 8 is the bound",
        "rms of the error over that of dense attention, 1.5 is the bound",
        "feedforward: worst error in units of u cond, 8 is the bound",
        "problems out lse dq dk dv",
        "uneven, empty ranks 1 ",
        "seq_axis=-3 1 ",
        "bfloat16 1",
        "silu, gated 1 ",
    ):
        assert text in words(shown.out)
    verdict, sent, ring, _ = shown.out.splitlines()[-4:]
    assert re.match(r"all 41 problems within the bound; worst [01]\.\d\d of 8 \(\w+, numpy/[^ ]+\)$", verdict)
    assert re.match(r"each solved twice with the same bits; \d\d\d messages, \d\.\d MB between ranks$", sent)
    assert re.match(r"numpy [\d.]+ on 3 threads; S = 83, seed 0, \d+ s$", ring)
    assert "FAIL" not in shown.out and "!" not in shown.out and "\x1b" not in shown.out
    assert shown.err.splitlines() == [f"verify {percent} %" for percent in range(10, 101, 10)]


@pytest.mark.parametrize("columns", ["80", "200"])
def test_tables_fit_into_80_columns(
    columns: str, capsys: Out, monkeypatch: pytest.MonkeyPatch, kernels: Any
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    kernels(defects.WrongSum())
    assert verify("--dtype", "float32") == 1
    tables, _, _ = capsys.readouterr().out.partition("FAILED numpy/")
    assert max(len(line.rstrip()) for line in tables.splitlines()) <= 80
    assert "..." not in tables and "…" not in tables
    (row,) = (line for line in tables.splitlines() if "more ranks than tokens" in line)
    assert row.split()[-2:] == ["1", "FAIL"] and row.count("!") == 5
    assert max(len(cell) for cell in row.split()) <= 6, "room for any number"


def test_one_problem_alone(capsys: Out) -> None:
    assert verify("--only", "mask/causal/float32") == 0
    out = words(capsys.readouterr().out)
    assert "the problem is within the bound; worst" in out
    assert "causal 1" in out and "window" not in out and "feedforward" not in out and "rms" not in out


def test_rounds_have_other_values(capsys: Out) -> None:
    assert verify("--only", "mask/causal/float32", "--rounds", "3") == 0
    assert "all 3 problems within" in capsys.readouterr().out


def test_what_is_left_out_is_said(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = libraries.importlib.util.find_spec
    monkeypatch.setattr(
        libraries.importlib.util, "find_spec", lambda name: None if name == "ml_dtypes" else find_spec(name)
    )
    assert verify("--only", "mask/causal") == 0
    shown = capsys.readouterr()
    assert "left out: bfloat16 of numpy needs ml_dtypes: pip install ml_dtypes" in shown.err
    assert "all 3 problems" in shown.out


@pytest.mark.parametrize("name", ["torch", "jax", "array_api_strict"])
def test_other_libraries(name: str, capsys: Out) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    few = ["--length", "8"] if name == "jax" else []
    assert verify("--library", name, "--dtype", "float32", "--only", "mask/d", *few) == 0
    out = capsys.readouterr().out
    assert "all 2 problems within the bound" in out and f"{name} " in out.splitlines()[-2]


def test_two_libraries(capsys: Out) -> None:
    pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    args = ["--library", "numpy", "--library", "array-api-strict", "--library", "numpy"]
    assert verify(*args, "--only", "mask/d") == 0
    out = words(capsys.readouterr().out)
    assert "library numpy 8 " in out and " array_api_strict 4 " in out and "all 12 problems" in out


# ------------------------------------------------------------------ it does not


def test_a_wrong_kernel(capsys: Out, kernels: Any) -> None:
    kernels(defects.DroppedHop())
    assert verify("--dtype", "float32") == 1
    out = capsys.readouterr().out
    tables, _, failures = out.partition("FAILED numpy/")
    (zigzag,) = (line.split() for line in tables.splitlines() if line.strip().startswith("zigzag"))
    assert [cell.endswith("!") for cell in zigzag[2:7]] == [False, False, False, True, False]
    assert "dk: dk must be within 8 u cond" in failures and "In Problem(xp=array_api_compat.numpy" in failures
    assert re.search(r"\.\.\. and \d+ more; --json FILE has all of them", failures)
    assert re.search(r"\d+ of 41 problems FAILED: dk \d+$", failures, re.MULTILINE)
    assert "within the bound;" not in out and "with the same bits" not in out


def test_a_failure_can_be_repeated(capsys: Out, kernels: Any) -> None:
    kernels(defects.WrongValues())
    seen = []
    args = shlex.split("verify --ranks 3 --length 21 --seed 9 --quick --rounds 2 --only mask/d")
    for _ in range(2):
        assert main(args) == 1
        out = capsys.readouterr().out
        failure = out.partition("FAILED ")[2].partition("\n\n")[0]
        seen.append(failure.partition("  repeat it")[0])
        args = shlex.split(failure.partition("repeat it: ringcore ")[2])
    assert seen[0] == seen[1] and "of 1 problem FAILED" in out
    # the line of Python is the same problem, too
    (line,) = {line.strip() for line in seen[0].splitlines() if line.strip().startswith("In Problem(")}
    problem = eval(line.removeprefix("In "), NAMES)
    with pytest.raises(AssertionError) as caught:
        testing.check_attention(problem, testing.solve(problem, backend=defects.WrongValues()))
    assert words(str(caught.value).partition("\nIn ")[0]) in words(seen[0])


def test_an_exception_is_a_failure_of_its_case_only(capsys: Out, kernels: Any) -> None:
    kernels(defects.Raises())
    assert verify("--dtype", "float32", "--only", "shape/H") == 1
    out = capsys.readouterr().out
    assert "error: MemoryError: no room for a tile (on rank 0 of 2)" in out
    assert re.search(r"^ +H 8, G 2 +1 +- +- +- +- +- +1 FAIL *$", out, re.MULTILINE)
    assert re.search(r"^ +H 6, G 1 .* ok *$", out, re.MULTILINE)
    assert "1 of 3 problems FAILED: error 1" in out


def test_other_bits_are_a_failure(capsys: Out, kernels: Any) -> None:
    kernels(defects.Unsteady())
    assert verify("--only", "mask/causal/float32") == 1
    assert "the same call must give the same bits. out" in capsys.readouterr().out


# ------------------------------------------------------------------ the file


def content(path: Path) -> Any:
    return json.loads(path.read_text(), parse_constant=pytest.fail)


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "verify.json"
    path.write_text("old")
    assert verify("--only", "/float32", "--json", str(path)) == 0
    assert list(tmp_path.iterdir()) == [path], "nothing is left over"
    found = content(path)
    assert found["passed"] is True and found["failures"] == []
    assert found["problems"] == {"planned": 41, "tried": 41, "failed": 0}
    assert found["arguments"]["only"] == "/float32" and found["arguments"]["seed"] == 0
    assert (found["ranks"], found["length"], found["transport"]) == (2, 20, "threads")
    assert found["versions"]["numpy"] == pytest.importorskip("numpy").__version__
    assert found["sent"]["messages"] > 0 and found["sent"]["bytes"] > 0
    (row,) = (r for r in found["rows"] if (r["section"], r["row"], r["quantity"]) == ("mask", "causal", "dk"))
    assert 0 <= row["worst"] < 2 and (row["bound"], row["problems"], row["passed"]) == (8.0, 1, True)
    (total,) = (
        r for r in found["rows"] if (r["section"], r["row"], r["quantity"]) == ("dtype", "float32", "out")
    )
    assert total["problems"] == 41
    shares = {r["worst"] / r["bound"] for r in found["rows"] if not r["quantity"].startswith("rms ")}
    assert found["worst"]["worst"] / found["worst"]["bound"] == max(shares)


def test_the_file_of_a_failure(tmp_path: Path, kernels: Any) -> None:
    path = tmp_path / "verify.json"
    kernels(defects.Swallows())
    assert verify("--dtype", "float64", "--json", str(path), "--only", "NaN") == 1
    found = content(path)
    assert found["passed"] is False and found["problems"]["failed"] == 1
    (failure,) = found["failures"]
    assert failure["case"] == "numpy/NaN/in-a-key/float64" and failure["problem"].startswith("Problem(")
    assert "out" in {fault["quantity"] for fault in failure["faults"]}
    (row,) = (
        r for r in found["rows"] if (r["section"], r["row"], r["quantity"]) == ("NaN", "in a key", "out")
    )
    assert row["worst"] is None and row["passed"] is False, "infinity has no number in JSON"


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, capsys: Out) -> None:
    for path, why in ((tmp_path, "a folder"), (tmp_path / "no" / "x.json", "cannot be written to")):
        assert verify("--json", str(path)) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and why in shown.err and "%" not in shown.err


def test_a_disk_that_fills_leaves_the_old_file(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "verify.json"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command.record.os, "fsync", full)
    assert verify("--only", "mask/causal/float32", "--json", str(path)) == 2
    shown = capsys.readouterr()
    assert "No space left on device" in shown.err and "within the bound" in shown.out
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------ options that cannot be

WRONG = [
    (["--ranks", "0"], "--ranks must be from 1 to"),
    (["--ranks", "100000"], "Got 100000."),
    (["--ranks", "two"], "--ranks"),
    (
        ["--library", "tensorflow"],
        "--library must be one of numpy, torch, jax, array_api_strict, cupy. Got tensorflow",
    ),
    (["--dtype", "int8"], "--dtype must be one of float64, float32, float16, bfloat16. Got int8."),
    (["--length", "7"], "--length must be from 8 to 1024"),
    (["--length", "1025"], "Got 1025."),
    (["--rounds", "0"], "--rounds must be at least 1. Got 0."),
    (["--timeout", "0"], "--timeout must be a positive number of seconds. Got 0."),
    (["--timeout", "nan"], "Got nan."),
    (["--only", "mask/casual"], "Got mask/casual, which is in none."),
    (["--seed", "x"], "--seed"),
    (["--fast"], "--fast"),
    (["extra"], "extra"),
]


@pytest.mark.parametrize(("args", "text"), WRONG)
def test_wrong_options_are_told_in_one_line(args: list[str], text: str, capsys: Out) -> None:
    assert main(["verify", *args]) == 2
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("ringcore: ") and text in line and shown.out == ""


# ------------------------------------------------------------------ on several processes, played by threads


class Played:
    """The command on every rank of one ring."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here = threading.local()
        monkeypatch.setattr(command, "world", lambda timeout: self.here.ring)

    def __call__(self, size: int, **options: Any) -> list[Any]:
        def on_rank(ring: rc.Ring) -> Any:
            self.here.ring = ring
            try:
                return command.verify(**{**DEFAULTS, **options})
            except (InputError, Stopped) as error:
                return error

        return rc.run_ranks(size, on_rank, timeout=30.0)


DEFAULTS: dict[str, Any] = {
    "ranks": None, "library": None, "dtype": ["float32"], "length": 20, "seed": 0, "rounds": 1,
    "quick": False, "only": "shape/", "timeout": 30.0, "json_": None,
}  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


def test_all_ranks_take_part_and_the_first_prints(played: Played, capsys: Out, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert played(3, json_=path) == [0, 0, 0]
    shown = capsys.readouterr()
    assert shown.out.count("all 8 problems within the bound") == 1 and "on 3 processes (MPI" in shown.out
    assert shown.err.count("100 %") == 1
    assert content(path)["ranks"] == 3


def test_all_ranks_know_the_verdict(played: Played, capsys: Out, kernels: Any) -> None:
    kernels(defects.WrongGradient(which="v"))
    assert played(3) == [1, 1, 1]
    out = capsys.readouterr().out
    assert "FAILED: dv" in out and "repeat it: mpirun -n 3 ringcore verify --length 20" in out


def test_a_rank_that_fails_alone_tells_why_and_nobody_waits(
    played: Played, capsys: Out, kernels: Any, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    (problem,) = (c for c in command.plan([(libraries.load("numpy"), ["float32"])], 3, 20, only="shape/H-8"))
    layout = problem.check.problem.q_layout  # type: ignore[attr-defined]
    kernels(defects.Raises(position=int(layout.positions(2)[0])))
    first, second, third = played(3, json_=path)
    assert first == 1
    assert isinstance(second, Stopped) and (second.exit_code, second.aloud) == (1, False)
    assert isinstance(third, Stopped) and (third.exit_code, third.aloud) == (1, True)
    assert "shape/H-8-G-2/float32: MemoryError: no room for a tile (on rank 2)" in str(third)
    out = words(capsys.readouterr().out)
    assert "FAILED numpy/shape/H-8-G-2/float32 peer: PeerFailed" in out
    assert (
        "1 of 1 problem FAILED: peer 1 stopped: after an error on some ranks only, the ring cannot be used"
        in out
    )
    assert "7 of 8 problems were not tried" in out
    assert content(path)["problems"] == {"planned": 8, "tried": 1, "failed": 1}


def test_ranks_are_not_chosen_under_mpirun(played: Played) -> None:
    texts = [str(error) for error in played(2, ranks=4)]
    assert texts[0] == texts[1] and "Got 4 under mpirun, which has started 2 processes." in texts[0]


def test_a_library_that_one_node_lacks(played: Played, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    def lacking(name: str) -> Any:
        if played.here.ring.rank == 1:
            raise InputError(f"--library {name} is not installed. Run: pip install {name}")
        return libraries.load(name)

    monkeypatch.setattr(command, "load", lacking)
    texts = [str(error) for error in played(3)]
    assert texts == ["--library numpy is not installed. Run: pip install numpy (on rank 1 of 3)"] * 3
    assert capsys.readouterr().out == ""


def test_ranks_that_would_verify_different_things(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        command, "chosen", lambda library, dtypes: ("float32", "float64")[: 1 + (played.here.ring.rank == 1)]
    )
    texts = [str(error) for error in played(2)]
    assert texts[0] == texts[1] and "Rank 0 has 8 problems of 20 tokens" in texts[0]
    assert "rank 1 16 problems" in texts[0]


def test_a_file_that_only_the_first_rank_could_write(played: Played, tmp_path: Path) -> None:
    texts = [str(error) for error in played(2, json_=tmp_path / "no" / "x.json")]
    assert texts[0] == texts[1] and "cannot be written to" in texts[0]


def test_a_disk_that_fills_is_told_on_all_ranks(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command.record.os, "fsync", full)
    texts = [str(error) for error in played(2, json_=tmp_path / "x.json")]
    assert texts[0] == texts[1] and "No space left on device" in texts[0]
    assert "all 8 problems within the bound" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_json_never_takes_the_place_of_a_device_nor_of_a_link(tmp_path: Path) -> None:
    """Renaming a file over /dev/null, as root, would."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"Got .*pipe, a device or a pipe"):
        record.check(pipe)
    link.symlink_to(target)
    record.check(link)
    record.write(link, {"a": 1})
    assert link.is_symlink() and json.loads(target.read_text()) == {"a": 1}
