"""One report from those of all ranks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ringcore.errors import PeerFailed
from ringcore.testing.shared_reports import MOST_TEXT, Crash, Note, RanksFailure, note_of, share
from ringcore.testing.verdicts import LockstepFailure

PASSED = Note("passed")
SKIPPED = Note("skipped", text="no such thing")
XFAILED = Note("skipped", xfail="a known bug", text="E  ZeroDivisionError")
XPASSED = Note("failed", unexpected=True, text="[XPASS(strict)] a known bug")


def failed(message="E: no", line=3, text=None, follows=False, sections=()):
    text = text or f"traceback of {message}"
    return Note("failed", crash=["t.py", line, message], text=text, sections=list(sections), follows=follows)


def shared(*notes, rank=0):
    """What rank's report becomes."""
    mine = notes[rank]
    report = SimpleNamespace(outcome=mine.outcome, longrepr=mine.text or None, sections=list(mine.sections))
    if mine.xfail is not None:
        report.wasxfail = mine.xfail
    share(report, notes)
    return report


def on_all(*notes):
    """What all ranks' reports become: the same."""
    reports = [shared(*notes, rank=rank) for rank in range(len(notes))]
    assert len({(report.outcome, str(report.longrepr)) for report in reports}) == 1
    return reports[0]


@pytest.mark.parametrize("note", [PASSED, SKIPPED, XFAILED, XPASSED])
def test_what_all_ranks_report_alike_stands(note):
    report = on_all(note, note, note)
    assert report.outcome == note.outcome
    assert report.longrepr == (note.text or None)


@pytest.mark.parametrize("other", [PASSED, SKIPPED, XFAILED, XPASSED])
def test_a_failure_on_one_rank_is_a_failure_on_all(other):
    report = on_all(other, failed(), other)
    assert report.outcome == "failed"
    assert not hasattr(report, "wasxfail")
    assert str(report.longrepr) == "[on rank 1 of 3]\ntraceback of E: no"
    assert report.longrepr.reprcrash == Crash("t.py", 3, "rank 1: E: no")


@pytest.mark.parametrize("other", [PASSED, XPASSED])
def test_a_failure_that_was_expected_on_one_rank_is_expected_on_all(other):
    report = on_all(other, XFAILED)
    assert (report.outcome, report.wasxfail) == ("skipped", "a known bug")


def test_a_skip_on_one_rank_only_is_a_failure():
    report = on_all(PASSED, PASSED, SKIPPED)
    assert report.outcome == "failed"
    assert "Rank 2 of 3 skipped it (no such thing), rank 0 did not" in report.longrepr


def test_ranks_that_failed_alike_are_shown_once():
    """They are alike if they failed with the same first line at the same place."""
    report = on_all(
        failed("E: 1\nwhere rank=0"), failed("E: 1\nwhere rank=1"), failed("E: 1"), failed("E: 2")
    )
    assert str(report.longrepr).count("[on rank") == 2
    assert "[on rank 0-2 of 4]\ntraceback of E: 1\nwhere rank=0" in str(report.longrepr)
    assert "[on rank 3 of 4]\ntraceback of E: 2" in str(report.longrepr)


def test_where_all_failed_alike_the_summary_names_no_rank():
    assert on_all(failed(), failed()).longrepr.reprcrash.message == "E: no"


def test_of_many_different_failures_some_are_shown_in_full():
    report = on_all(*[failed(f"E: {n}", text="a long one") for n in range(9)])
    assert str(report.longrepr).count("a long one") == 3
    assert "[on rank 8 of 9] E: 8" in str(report.longrepr)


def test_those_who_only_followed_are_not_shown():
    report = on_all(
        failed("PeerFailed", follows=True), failed("E: cause"), failed("PeerFailed", follows=True)
    )
    assert str(report.longrepr) == "[on rank 1 of 3]\ntraceback of E: cause"
    assert "PeerFailed" in str(on_all(failed("PeerFailed", follows=True), PASSED).longrepr)


def test_captured_output_is_that_of_the_ranks_shown():
    sections = [["Captured stdout call", "hello"]]
    report = on_all(PASSED, failed(sections=sections))
    assert report.sections == [("Captured stdout call on rank 1", "hello")]


def report_of(outcome, text="", **more):
    return SimpleNamespace(outcome=outcome, longrepr=text, longreprtext=text, sections=[], **more)


@pytest.mark.parametrize(
    ("error", "follows"),
    [(ValueError("no"), False), (PeerFailed("rank 1"), True), (LockstepFailure("failed on rank 1"), True)],
)
def test_an_error_that_another_rank_has_caused_is_known(error, follows):
    assert note_of(report_of("failed", "text"), error).follows is follows


def test_an_error_in_lockstep_leads_where_it_has_a_cause_of_its_own():
    error = LockstepFailure("failed on rank 0")
    error.__cause__ = ValueError("no")
    assert not note_of(report_of("failed", "text"), error).follows
    error.__cause__ = PeerFailed("rank 1")
    assert note_of(report_of("failed", "text"), error).follows


def test_a_note_says_little_of_a_pass_and_cuts_a_long_failure():
    assert note_of(report_of("passed"), None) == PASSED
    note = note_of(report_of("failed", "a" * MOST_TEXT + "b" * MOST_TEXT), ValueError())
    assert len(note.text) < MOST_TEXT + 20
    assert note.text.startswith("aaa")
    assert note.text.endswith("bbb")


def test_a_skip_and_an_unexpected_pass_are_told_from_a_failure():
    skip = SimpleNamespace(outcome="skipped", longrepr=("t.py", 3, "Skipped: no such thing"), sections=[])
    assert note_of(skip, None) == SKIPPED
    assert note_of(report_of("failed", "[XPASS(strict)]"), None).unexpected
    assert (
        note_of(report_of("skipped", "text", wasxfail="a known bug"), ZeroDivisionError()).xfail
        == "a known bug"
    )


def test_a_failure_is_printed_line_by_line():
    lines = []
    writer = SimpleNamespace(line=lambda text, **markup: lines.append((text, markup["red"])))
    RanksFailure(Crash("t.py", 3, "no"), "> assert False\nE  no").toterminal(writer)
    assert lines == [("> assert False", False), ("E  no", True)]
