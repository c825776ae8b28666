"""`ringcore bench` as people use it: a table, a file, a picture, an exit code."""

from __future__ import annotations

import io
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console
from ringcore_threads import ThreadTransport

from ringcore import registry
from ringcore.block import GenericBackend
from ringcore.cli import main
from ringcore.cli.bench import gemm, measure, plot, room, screen
from ringcore.cli.bench.figures import Figures
from ringcore.cli.bench.run import Outcome
from tests.cli.defects import Raises
from tests.cli.test_bench_check import Off
from tests.cli.test_bench_parts import row

Out = pytest.CaptureFixture[str]
FIGURES = Figures(1.0, 1.0, 2.0, 0.5, None, 0, 0, 0, 0.0, None, 0, "", None, None, 1, 1, 1, {})
SMALL = ["--length", "60", "--dim", "8", "-l", "2"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No products of a size that takes a while, no pauses."""
    monkeypatch.setattr(gemm, "SIZE", 64)
    monkeypatch.setattr(measure, "PAUSE", 0.0)
    monkeypatch.setattr(measure, "SHORTEST", 0.0)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Give attention other kernels than the library's own."""
    return lambda backend: monkeypatch.setattr(registry, "backend_of", lambda array: backend)


@pytest.fixture(autouse=True)
def plain(kernels: Callable[[Any], None]) -> None:
    kernels(GenericBackend())


def bench(*args: str) -> int:
    return main(["bench", *SMALL, *args])


def content(path: Path) -> Any:
    return json.loads(path.read_text(), parse_constant=pytest.fail)


# ------------------------------------------------------------------ what is there


@pytest.mark.usefixtures("quick")
def test_all_is_well(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert bench("--ranks", "2", "--mask", "causal,window:8", "--layout", "zigzag,striped:4") == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [x.strip() for x in lines if x.startswith("numpy float32")] == [
        "numpy float32, 4 heads, D = 8, zigzag",
        "numpy float32, 4 heads, D = 8, striped:4",
    ]
    cells = [line.split() for line in lines if re.match(r" *60 ", line)]
    assert [x[1:3] for x in cells] == 2 * [[m, d] for m in ("causal", "window:8") for d in ("fwd", "both")]
    assert re.match(r"numpy [\d.]+ on 2 ranks, threads of one process; \d+ s$", lines[-2])
    assert lines[-1].startswith("ringcore ") and "FAIL" not in shown.out and "\x1b" not in shown.out
    assert max(len(line.rstrip()) for line in lines if "not steady" not in line) <= 80
    first, *told = shown.err.splitlines()
    assert re.match(
        r"8 rows on 2 ranks, threads of one process with \d+ cores?, 2 loops each: about \d+ s", first
    )
    assert told[0] == "bench 1 of 8: S = 60, causal, forward" and len(told) == 8


@pytest.mark.usefixtures("quick")
def test_a_table_is_never_cut(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    mask = "causal&documents:1000000&window:1000000:1000000&prefix:1000000"
    assert bench("--mask", mask, "--direction", "forward", "--scaling", "--ranks", "2") == 0
    out = capsys.readouterr().out
    assert mask in out and "…" not in out


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_file(ranks: int, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text("old")
    options = ["--ranks", str(ranks), "--scaling", "-s", "2", "--kv-heads", "2", "--dtype", "float64"]
    assert bench(*options, "--json", str(path)) == 0
    assert list(tmp_path.iterdir()) == [path], "nothing is left over"
    found = content(path)
    assert set(found) == {"ranks", "transport", "how", "versions", "machine", "passed", "rows"}
    assert (found["ranks"], found["transport"], found["passed"]) == (ranks, "threads", True)
    assert found["how"] == {"skip": 2, "loop": 2, "seconds": 20.0, "scaling": True}
    assert found["versions"]["numpy"] == np.__version__
    assert [(r["mask"], r["direction"]) for r in found["rows"]] == [
        (mask, way) for mask in ("full", "causal") for way in ("forward", "forward+backward")
    ]
    for one in found["rows"]:
        pairs = 60 * 60 if one["mask"] == "full" else 60 * 61 // 2
        products = 2 if one["direction"] == "forward" else 7
        assert one["pairs"] == pairs and one["flops"] == 2 * 8 * 4 * products * pairs
        assert (one["length"], one["heads"], one["kv_heads"], one["dim"]) == (60, 4, 2, 8)
        assert (one["library"], one["dtype"], one["layout"], one["error"]) == (
            "numpy",
            "float64",
            "zigzag",
            None,
        )
        f = one["figures"]
        assert set(f) == set(Figures.__dataclass_fields__)
        assert f["seconds"] > 0 and f["gflops"] == pytest.approx(one["flops"] / f["seconds"] / 1e9)
        assert 0 < f["useful"] <= 1 and (f["useful"] == 1) == (one["mask"] == "full")
        assert f["speedup"] > 0 and f["efficiency"] == pytest.approx(f["speedup"]), "the same cores"
        assert (f["loops"], f["calls"]) == (2, 1)
        samples = f["samples"]
        assert len(samples["seconds"]) == len(samples["one_rank_seconds"]) == 2
        assert len(samples["gemm_seconds"]) == 3
        assert len(samples["blocked_seconds"]) == len(samples["alone_seconds"]) == ranks
        if ranks == 1:
            assert (f["messages"], f["bytes"], f["overlap"]) == (0, 0, None)
        elif one["mask"] == "full" and one["direction"] == "forward":
            # every rank gets the keys and values of every other one
            assert f["bytes"] == ranks * (ranks - 1) * (60 // ranks) * 8 * 2 * 2 * 8 and f["overlap"] <= 1


@pytest.mark.usefixtures("quick")
def test_bytes_are_those_of_the_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[int]] = []
    post, lock = ThreadTransport.exchange, threading.Lock()

    def exchange(self: ThreadTransport, sends: Any, recvs: Any) -> Any:
        with lock:
            sent.append([len(s.buffer) for s in sends])
        return post(self, sends, recvs)

    monkeypatch.setattr(ThreadTransport, "exchange", exchange)
    path = tmp_path / "x.json"
    assert (
        bench("--ranks", "3", "--mask", "window:9", "--direction", "both", "-s", "0", "--json", str(path))
        == 0
    )
    f = content(path)["rows"][0]["figures"]
    # the check, the first call, and 2 loops with the same exchanges alone after each
    assert sum(map(len, sent)) == 6 * f["messages"] > 0
    assert sum(map(sum, sent)) == 6 * f["bytes"] > 0


@pytest.mark.usefixtures("quick")
def test_slow_messages_hold_ranks_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    post = ThreadTransport.exchange

    def exchange(self: ThreadTransport, sends: Any, recvs: Any) -> Any:
        time.sleep(0.2 if sends or recvs else 0)
        return post(self, sends, recvs)

    monkeypatch.setattr(ThreadTransport, "exchange", exchange)
    path = tmp_path / "x.json"
    options = ["--mask", "full", "--direction", "forward", "--json", str(path), "-l", "3"]
    assert bench("--ranks", "2", *options) == 0
    f = content(path)["rows"][0]["figures"]
    assert 0.2 <= f["held_up"] < 0.39 and f["seconds"] > 0.2 and -0.5 < f["overlap"] < 0.3
    for loops in f["samples"]["blocked_seconds"] + f["samples"]["alone_seconds"]:
        assert all(0.2 <= x < 0.39 for x in loops), "of each loop by itself"


def test_share_of_real_products(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    args = ["bench", "-n", "512", "-l", "4", "--mask", "full", "--direction", "forward", "--json", str(path)]
    assert main(args) == 0
    (one,) = content(path)["rows"]
    f, samples = one["figures"], one["figures"]["samples"]
    product = 2 * gemm.SIZE**3 * f["cores"]
    # each at its best, as others may use this machine
    share = one["flops"] / min(samples["seconds"]) / (product / min(samples["gemm_seconds"]))
    assert 0 < share <= 1.3 and f["share"] > 0
    assert f["gemm_gflops"] == pytest.approx(product / median(samples["gemm_seconds"]) / 1e9)
    assert 1 < f["gemm_gflops"] / f["cores"] < 1000, "of one core"


@pytest.mark.parametrize(("times", "said"), [([1.0, 1.2, 1.1], False), ([1.0, 1.2, 2.5], True)])
def test_an_unsteady_machine_is_said(times: list[float], said: bool, capsys: Out) -> None:
    found = replace(FIGURES, samples={"gemm_seconds": times})
    screen.report(Console(), [Outcome(row(), found)], 1, ["the end"])
    out = capsys.readouterr().out
    assert ("some took 2.5 times as long as others" in out) == said and out.endswith("the end\n")


@pytest.mark.usefixtures("quick")
def test_loops_as_time_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    for seconds, least, most in (
        ("0.001", 3, 3),
        ("1", 4, measure.MOST),
        ("1e6", measure.MOST, measure.MOST),
    ):
        options = ["--seconds", seconds, "--mask", "full", "--direction", "forward", "--json", str(path)]
        assert main(["bench", "-n", "60", "--dim", "8", *options]) == 0
        assert least <= content(path)["rows"][0]["figures"]["loops"] <= most
    monkeypatch.setattr(measure, "SHORTEST", 0.2)
    assert bench("--mask", "full", "--direction", "forward", "--json", str(path)) == 0
    f = content(path)["rows"][0]["figures"]
    assert f["calls"] > 3 and f["loops"] == 2, "short calls are timed together"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["torch", "jax", "array_api_strict"])
def test_other_libraries(name: str, capsys: Out) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    assert bench("--library", name, "--mask", "causal", "--ranks", "2") == 0
    assert f"{name} float32, 4 heads" in capsys.readouterr().out


# ------------------------------------------------------------------ the picture


@pytest.mark.usefixtures("quick")
def test_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    assert bench("-n", "30,60", "--plot", str(path)) == 0
    assert matplotlib.image.imread(io.BytesIO(path.read_bytes())).shape[0] > 300
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_for_each_mask_and_direction() -> None:
    rows = [
        row(lengths=S, masks=m, directions=d)
        for S in (9, 3)
        for m in ("full", "causal")
        for d in ("forward", "both")
    ]
    (axes,) = plot.figure(
        [Outcome(one, FIGURES) for one in rows] + [Outcome(rows[0], fault="wrong")], "x"
    ).axes
    assert [line.get_xdata().tolist() for line in axes.lines] == [[3, 9]] * 4  # type: ignore[union-attr]
    assert [line.get_label() for line in axes.lines] == [
        "full, forward", "full, forward+backward", "causal, forward", "causal, forward+backward"
    ]  # fmt: skip


# ------------------------------------------------------------------ what is wrong


@pytest.mark.usefixtures("quick")
def test_a_wrong_answer_is_not_timed(capsys: Out, tmp_path: Path, kernels: Any) -> None:
    kernels(Off(which="k"))
    path = tmp_path / "x.json"
    assert bench("--ranks", "2", "--mask", "full", "--json", str(path)) == 1
    out = capsys.readouterr().out
    assert re.search(r"^ *60 +full +both +FAILED *$", out, re.MULTILINE)
    assert (
        "FAILED numpy float32, 4 heads, D = 8, zigzag, S = 60, full, forward+backward\n  dk is wrong: " in out
    )
    assert "1 of 2 rows FAILED" in out
    found = content(path)
    assert found["passed"] is False
    good, bad = found["rows"]
    assert good["error"] is None and good["figures"]["share"] > 0
    assert bad["figures"] is None and bad["error"].startswith("dk is wrong: ")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("ranks", ["1", "2"])
def test_an_exception_is_its_row_s(ranks: str, capsys: Out, tmp_path: Path, kernels: Any) -> None:
    kernels(Raises())
    png = tmp_path / "x.png"
    assert bench("--ranks", ranks, "--heads", "8", "--kv-heads", "2", "--plot", str(png)) == 1
    shown = capsys.readouterr()
    assert "\n  MemoryError: no room for a tile" in shown.out and "Traceback" not in shown.out + shown.err
    assert "of 4 rows FAILED" in shown.out


REFUSED = {
    "--length 0": "--length must be a whole number from 1 to 2147483647. Got 0.",
    "--length 5,x": "--length must be a whole number from 1 to 2147483647. Got x.",
    "--dim 0": "--dim must be",
    "--heads 0": "--heads must be from 1 to 4096. Got 0.",
    "--heads 4 --kv-heads 3": "--kv-heads must divide --heads, 4. Got 3.",
    "--kv-heads 0": "--kv-heads must divide --heads, 4. Got 0.",
    "--mask triangle": "--mask must be one of full, causal,",
    "--layout ring": "--layout must be contiguous,",
    "--direction backward": "--direction must be one of forward, both. Got backward.",
    "--dtype int8": "--dtype must be one of",
    "--library pandas": "--library must be one of",
    "--ranks 0": "--ranks must be from 1 to",
    "--skip -1": "--skip must be from 0 to",
    "--loop 0": "--loop must be from 1 to",
    "--seconds 0": "--seconds must be a positive number of seconds. Got 0.",
    "--seconds nan": "--seconds must be a positive number of seconds. Got nan.",
    "--timeout -1": "--timeout must be a positive number of seconds. Got -1.",
    "--json /": "--json must be a file. Got /, a folder.",
    "--json /no/such/x.json": "--json /no/such/x.json cannot be written to: No such file or directory.",
    "--plot x.pdf": "--plot must be a file whose name ends in .png. Got x.pdf.",
    "--plot /no/such/x.png": "--plot /no/such/x.png cannot be written to:",
    "--length 2147483647 --heads 4096": "needs",
    "--nothing": "No such option: --nothing",
}


@pytest.mark.parametrize("args", REFUSED)
def test_what_cannot_be_used(args: str, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(room, "free", lambda: 10**9)
    assert main(["bench", *args.split()]) == 2
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1 and shown.err.startswith("ringcore: ") and not shown.out
    assert REFUSED[args] in shown.err and list(tmp_path.iterdir()) == []


def test_help(capsys: Out) -> None:
    assert main(["bench", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for text in ("-n", "-s", "-l", "Tokens", "not timed", "--scaling", "--plot"):
        assert text in out
