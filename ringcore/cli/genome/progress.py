"""A progress bar for work that counts itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

import ringcore as rc
from ringcore.cli.genome.estimate import spoken


@contextmanager
def watched(meter: rc.Meter, total: int, console: Console) -> Iterator[None]:
    """Show a bar of ``meter.scores`` out of ``total``, and the time left, while the block runs.

    Another thread looks on: the block may use MPI, and a signal ends it at once, as both want the main
    thread. Where the console is no terminal, a line tells of each tenth instead.
    """
    over = threading.Event()
    with _shown(console, total) as show:

        def look_on() -> None:
            while not over.wait(0.1):
                show(min(meter.scores, total))

        watcher = threading.Thread(target=look_on, name="ringcore-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
        show(total)


@contextmanager
def _shown(console: Console, total: int) -> Iterator[Callable[[int], None]]:
    if not console.is_terminal:
        yield _lines(console, total)
        return
    columns = (
        TextColumn("attention"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task("attention", total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(console: Console, total: int) -> Callable[[int], None]:
    begin = time.monotonic()
    told = 0

    def show(done: int) -> None:
        nonlocal told
        tenth = 10 * done // max(total, 1)
        if tenth > told:
            told = tenth
            left = (time.monotonic() - begin) * (total - done) / max(done, 1)
            console.print(f"attention {10 * tenth} %" + (f", {spoken(left)} left" if done < total else ""))

    return show
