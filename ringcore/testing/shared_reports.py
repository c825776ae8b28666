"""One report of a test for all ranks, from what each rank reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringcore.testing.meeting import is_consequence
from ringcore.testing.verdicts import LockstepFailure

MOST_TEXT = 20_000
"""Characters of a rank's traceback that the others get."""

MOST_FAILURES = 3
"""Different failures of one test that are shown in full."""


class Crash(NamedTuple):
    """Where and how a test failed, as pytest has it in ``longrepr.reprcrash``."""

    path: str
    lineno: int
    message: str


@dataclass(frozen=True)
class Note:
    """What one rank tells the others about its report.

    Attributes
    ----------
    outcome : str
        'passed', 'failed' or 'skipped'.
    xfail : str or None
        The reason why a failure was expected, where the report says so.
    unexpected : bool
        It failed because it passed: ``xfail(strict=True)``.
    crash : list of path, lineno, message; or None
    text : str
        The traceback as pytest shows it, or the reason of a skip.
    sections : list of (title, text)
        Captured output.
    follows : bool
        The failure only says that another rank has failed.
    """

    outcome: str
    xfail: str | None = None
    unexpected: bool = False
    crash: list[Any] | None = None
    text: str = ""
    sections: list[Any] = field(default_factory=list)
    follows: bool = False


@dataclass(frozen=True)
class RanksFailure:
    """A failure on some ranks, with what pytest's summaries ask of a traceback."""

    reprcrash: Crash
    text: str

    def toterminal(self, writer: Any) -> None:
        """Write it, errors in red as in pytest's own tracebacks."""
        for line in self.text.splitlines():
            writer.line(line, red=line.startswith("E "), bold=line.startswith(("E ", "> ")))

    def __str__(self) -> str:
        return self.text


def note_of(report: Any, error: BaseException | None) -> Note:
    """What this rank has to say about a test, or its setup or teardown; in full only if it did not pass."""
    if report.outcome == "passed":
        return Note("passed", getattr(report, "wasxfail", None))
    crash = getattr(report.longrepr, "reprcrash", None)
    return Note(
        outcome=report.outcome,
        xfail=getattr(report, "wasxfail", None),
        unexpected=report.outcome == "failed" and error is None,
        crash=crash and [str(crash.path), crash.lineno, crash.message],
        text=_text(report),
        sections=[[title, _cut(text)] for title, text in report.sections],
        follows=_follows(error),
    )


def _follows(error: BaseException | None) -> bool:
    if isinstance(error, LockstepFailure):
        return error.__cause__ is None or is_consequence(error.__cause__)
    return is_consequence(error)


def share(report: Any, notes: Sequence[Note]) -> None:
    """Make a rank's report that of all ranks: failed if it failed on any, skipped if skipped on all."""
    failed = _ranks(notes, lambda note: note.outcome == "failed" and not note.unexpected)
    expected = _ranks(notes, lambda note: note.outcome == "skipped" and note.xfail is not None)
    skipped = _ranks(notes, lambda note: note.outcome == "skipped" and note.xfail is None)
    if failed:
        report.outcome = "failed"
        report.longrepr = _failure(failed, notes)
        report.sections = _sections(failed, notes)
        vars(report).pop("wasxfail", None)
    elif expected and len(expected) < len(notes):
        report.outcome, report.wasxfail = "skipped", notes[expected[0]].xfail
        report.longrepr = notes[expected[0]].text
    elif skipped and len(skipped) < len(notes):
        other = next(rank for rank in range(len(notes)) if rank not in skipped)
        report.outcome = "failed"
        report.longrepr = (
            f"All ranks must skip a test alike. Rank {skipped[0]} of {len(notes)} skipped it "
            f"({notes[skipped[0]].text}), rank {other} did not. "
            "Skip for a reason that is the same on all ranks."
        )


def _ranks(notes: Sequence[Note], holds: Any) -> list[int]:
    return [rank for rank, note in enumerate(notes) if holds(note)]


def _groups(failed: list[int], notes: Sequence[Note]) -> list[list[int]]:
    """Ranks that failed alike; those that only followed come last, and not at all where others lead."""
    leading = [rank for rank in failed if not notes[rank].follows] or failed
    groups: dict[tuple[str, int, str], list[int]] = {}
    for rank in leading:
        path, lineno, message = _crash(notes[rank])
        groups.setdefault((path, lineno, message.partition("\n")[0]), []).append(rank)
    return list(groups.values())


def _crash(note: Note) -> Crash:
    return Crash(*note.crash) if note.crash else Crash("", 0, note.text)


def _failure(failed: list[int], notes: Sequence[Note]) -> RanksFailure:
    groups = _groups(failed, notes)
    parts = []
    for ranks in groups[:MOST_FAILURES]:
        parts.append(f"[on rank {_listed(ranks)} of {len(notes)}]\n{notes[ranks[0]].text}")
    for ranks in groups[MOST_FAILURES:]:
        first_line = _crash(notes[ranks[0]]).message.partition("\n")[0]
        parts.append(f"[on rank {_listed(ranks)} of {len(notes)}] {first_line}")
    path, lineno, message = _crash(notes[groups[0][0]])
    where = "" if len(groups[0]) == len(notes) else f"rank {_listed(groups[0])}: "
    return RanksFailure(Crash(path, lineno, where + message), "\n\n".join(parts))


def _sections(failed: list[int], notes: Sequence[Note]) -> list[tuple[str, str]]:
    """Captured output of the ranks whose failures are shown."""
    shown = [ranks[0] for ranks in _groups(failed, notes)[:MOST_FAILURES]]
    return [(f"{title} on rank {rank}", text) for rank in shown for title, text in notes[rank].sections]


def _listed(ranks: Sequence[int]) -> str:
    """As "1, 3-5".

    Examples
    --------
    >>> _listed([0, 1, 2, 4, 6, 7])
    '0-2, 4, 6, 7'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _text(report: Any) -> str:
    """A skip's reason, or a traceback; that has lost the spaces before its first line of source."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    text = str(report.longreprtext)
    return _cut(f"    {text}" if text.startswith(("def ", "async def ", "@")) else text)


def _cut(text: str) -> str:
    """A long text without its middle."""
    half = MOST_TEXT // 2
    return text if len(text) <= MOST_TEXT else f"{text[:half]}\n[...]\n{text[-half:]}"
