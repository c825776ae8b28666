"""What the user reads: tables of the worst errors, each failure with the line that repeats it, a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from ringcore.cli.printable import printable
from ringcore.cli.verify.cases import LAYER
from ringcore.cli.verify.outcome import Measure, Outcome
from ringcore.cli.verify.tally import Group, Tally

ATTENTION = ("out", "lse", "dq", "dk", "dv")
LAYERS = ("y", "dx", "dw", "db")
BOUND = 8.0
_TOLD = 5  # failures in full
_VIEWS = ("dtype", "library")


def report(console: Console, tally: Tally, planned: int, repeat: str, closing: Sequence[str]) -> None:
    """Print everything.

    Parameters
    ----------
    console : Console
    tally : Tally
    planned : int
        How many problems there should have been.
    repeat : str
        The command line that repeats a case, but for its name.
    closing : sequence of str
        Lines under the verdict.
    """
    groups = list(tally.groups.values())
    views = [g for g in groups if g.section == "dtype"]
    libraries = [g for g in groups if g.section == "library"]
    views += libraries if len(libraries) > 1 else []
    rows = [g for g in groups if g.section not in _VIEWS]
    attention = [g for g in rows if g.section != LAYER]
    layers = [g for g in rows if g.section == LAYER]
    growth = [g for g in attention if any(q.startswith("rms ") for q in g.worst)]
    if attention:
        title = "attention: worst error in units of u cond, 8 is the bound"
        _print(console, _table(title, [*attention, *views], ATTENTION))
        if any(m.bound > BOUND for g in attention for m in g.worst.values()):
            _say(console, "  equal values: the bound is 8 + n/4, the error is shown as its share of 8\n")
    if growth:
        title = "rms of the error over that of dense attention, 1.5 is the bound"
        _print(console, _table(title, growth, [f"rms {q}" for q in ATTENTION]))
    if layers:
        title = "feedforward: worst error in units of u cond, 8 is the bound"
        _print(console, _table(title, layers, LAYERS))
    for outcome in tally.failures[:_TOLD]:
        _failure(console, outcome, repeat)
    if len(tally.failures) > _TOLD:
        _say(console, f"... and {len(tally.failures) - _TOLD} more; --json FILE has all of them\n")
    _verdict(console, tally, planned)
    for line in closing:
        _say(console, line)


def _table(title: str, groups: Iterable[Group], quantities: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("", min_width=24, no_wrap=True)
    table.add_column("problems", justify="right")
    for quantity in quantities:
        table.add_column(quantity.removeprefix("rms "), justify="right", min_width=6, no_wrap=True)
    table.add_column("", no_wrap=True)
    section = None
    for group in groups:
        if group.section != section:
            section = group.section
            table.add_row(f"[bold]{section}[/]")
        cells = [_cell(group.worst.get(q), q in group.faulty) for q in quantities]
        verdict = f"[bold red]{group.failed} FAIL[/]" if group.failed else "ok"
        table.add_row(f"  {group.row}", str(group.problems), *cells, verdict)
    return table


def _cell(measure: Measure | None, faulty: bool) -> str:
    if measure is None:
        return "-"
    rms = measure.quantity.startswith("rms ")
    text = _figure(measure.worst if rms else BOUND * measure.share)
    return f"[bold red]{text}![/]" if faulty else text


def _figure(x: float) -> str:
    """At most five characters."""
    for limit, digits in ((9.995, 2), (99.95, 1), (9999.5, 0)):
        if x < limit:
            return f"{x:.{digits}f}"
    return "inf" if math.isinf(x) else f"{x:.0e}"


def _failure(console: Console, outcome: Outcome, repeat: str) -> None:
    _say(console, f"FAILED {outcome.case.name}")
    for fault in outcome.faults:
        first, *more = fault.message.splitlines() or [""]
        _say(console, f"  {fault.quantity}: {first}")
        for line in more:
            _say(console, f"    {line}")
    _say(console, f"  repeat it: {repeat} --only {outcome.case.name}\n")


def _verdict(console: Console, tally: Tally, planned: int) -> None:
    plural = "problem" if tally.problems == 1 else "problems"
    if tally.passed:
        worst = ""
        if tally.worst is not None:
            measure, name = tally.worst
            worst = f"; worst {_figure(BOUND * measure.share)} of 8 ({measure.quantity}, {name})"
        every = f"all {tally.problems} {plural}" if tally.problems > 1 else "the problem is"
        _say(console, f"{every} within the bound{worst}")
        moved = f"{tally.messages:,} messages, {tally.bytes / 1e6:,.1f} MB between ranks"
        _say(console, f"each solved twice with the same bits; {moved}")
        return
    where = ", ".join(f"{quantity} {count}" for quantity, count in tally.by_fault().most_common())
    _say(console, f"{len(tally.failures)} of {tally.problems} {plural} FAILED: {where}")
    if tally.stopped:
        _say(
            console,
            f"stopped: after an error on some ranks only, the ring cannot be used; "
            f"{planned - tally.problems} of {planned} problems were not tried",
        )


def _print(console: Console, table: Table) -> None:
    console.print(table)
    console.print()


def _say(console: Console, text: str) -> None:
    """Lines as they are: to be copied, not to be wrapped."""
    for line in text.split("\n"):
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
