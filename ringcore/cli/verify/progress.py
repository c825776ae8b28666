"""How far it is, on standard error: a bar where a person looks on, else a line for each tenth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ringcore.cli.verify.outcome import Outcome


def followed(outcomes: Iterable[Outcome], total: int, console: Console) -> Iterator[Outcome]:
    """The outcomes, one by one, while it shows how many there are."""
    if not console.is_terminal:
        yield from _told(outcomes, total, console)
        return
    columns = (
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, expand=True, transient=True) as bar:
        task = bar.add_task("", total=total)
        failed = 0
        for outcome in outcomes:
            failed += not outcome.passed
            bar.update(task, advance=1, description=f"[bold red]{failed} FAILED[/]" if failed else "")
            yield outcome


def _told(outcomes: Iterable[Outcome], total: int, console: Console) -> Iterator[Outcome]:
    told = 0
    for done, outcome in enumerate(outcomes, start=1):
        tenth = 10 * done // total
        if tenth > told:
            told = tenth
            console.print(f"verify {10 * tenth} %", highlight=False)
        yield outcome
