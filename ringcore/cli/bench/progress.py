"""How far it is, on standard error: a bar where a person looks on, else a line for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ringcore.cli.bench.rows import Row
from ringcore.cli.bench.run import Tell


@contextmanager
def followed(rows: Sequence[Row], console: Console | None) -> Iterator[Tell]:
    """What is told while the block runs; nothing without a console."""
    if console is None:
        yield lambda row, done, of: None
    elif not console.is_terminal:
        yield _lines(rows, console)
    else:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TimeElapsedColumn())
        with Progress(*columns, console=console, expand=True, transient=True) as bar:
            task = bar.add_task("", total=len(rows))

            def show(row: Row, done: int, of: int) -> None:
                at = f"loop {done + 1} of {of}" if of else "check"
                part = (done / of) if of else 0.0
                bar.update(task, completed=rows.index(row) + part, description=f"{row}: {at}")

            yield show


def _lines(rows: Sequence[Row], console: Console) -> Tell:
    def show(row: Row, done: int, of: int) -> None:
        if not of:
            text = f"bench {rows.index(row) + 1} of {len(rows)}: {row}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    return show
