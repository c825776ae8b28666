"""Who speaks under a launcher, and how a process leaves."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ringcore import cli
from ringcore.cli import main, world
from ringcore.cli.stop import Stopped

PMI = ("PMI_RANK", "PMI_SIZE")


def launched(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    for name, value in zip(PMI, (rank, size), strict=True):
        monkeypatch.setenv(name, str(value))


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """How the process would end, without ending it."""
    how: list[tuple[str, int]] = []

    def exit_now(code: int) -> None:
        how.append(("exit", code))
        raise SystemExit(code)

    def abort(code: int, grace: float) -> None:
        how.append(("abort", code))
        raise SystemExit(code)

    mpi = SimpleNamespace(Is_initialized=lambda: True, Is_finalized=lambda: False)
    monkeypatch.setattr(os, "_exit", exit_now)
    monkeypatch.setattr(world, "_GRACE_SECONDS", 0.01)
    monkeypatch.setattr(world, "_SHORT_GRACE_SECONDS", 0.01)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    monkeypatch.setitem(sys.modules, "ringcore_mpi.ending", SimpleNamespace(abort=abort))
    return how


@pytest.mark.parametrize(("rank", "speaks"), [(0, True), (1, False)])
def test_only_the_first_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int, speaks: bool
) -> None:
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)  # another test may have loaded it
    launched(monkeypatch, rank, 2)
    assert main(["--version"]) == 0
    waits: list[float] = []
    monkeypatch.setattr(world.time, "sleep", waits.append)
    assert main(["genome", "--no-such-option"]) == 2
    assert bool(waits) != speaks  # lest the first be cut off
    shown = capsys.readouterr()
    assert ("ringcore " in shown.out, "No such option" in shown.err) == (speaks, speaks)
    assert speaks or shown.out + shown.err == ""


@pytest.mark.parametrize(
    ("rank", "aloud", "said"), [(0, False, True), (0, True, True), (1, False, False), (1, True, True)]
)
def test_a_rank_that_is_stopped_ends_all(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    exits: list[tuple[str, int]],
    rank: int,
    aloud: bool,
    said: bool,
) -> None:
    def stopped(args: Any) -> int:
        print("not the first" if rank else "the first")
        raise Stopped("a \x1b[31mcause\nof two lines", 77, outcome="And so on.", aloud=aloud)

    launched(monkeypatch, rank, 2)
    monkeypatch.setattr(cli, "_run", stopped)
    with pytest.raises(SystemExit):
        main([])
    assert exits == [("abort", 77)]
    shown = capsys.readouterr()
    assert shown.out == ("" if rank else "the first\n")
    assert shown.err == ("ringcore: a \\x1b[31mcause of two lines. And so on.\n" if said else "")


def test_a_defect_ends_all_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], exits: list[tuple[str, int]]
) -> None:
    def defect(args: Any) -> int:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(cli, "_run", defect)
    with pytest.raises(ZeroDivisionError):
        main([])
    assert exits == [] and capsys.readouterr().err == ""
    launched(monkeypatch, 1, 2)
    with pytest.raises(SystemExit):
        main([])
    assert exits == [("abort", 1)]
    assert "ZeroDivisionError: a defect" in capsys.readouterr().err


def test_a_process_alone_and_one_without_mpi_just_end(
    monkeypatch: pytest.MonkeyPatch, exits: list[tuple[str, int]]
) -> None:
    with pytest.raises(SystemExit):
        world.leave(3)
    launched(monkeypatch, 0, 2)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI")
    with pytest.raises(SystemExit):
        world.leave(4)
    assert exits == [("exit", 3), ("exit", 4)]
