"""A progress bar for work that runs in another thread and counts itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

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

T = TypeVar("T")


class _Call(threading.Thread, Generic[T]):
    """Run a function in a thread that does not keep the process alive; hand on what it returns or raises."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(name="ringcore-genome", daemon=True)
        self.work = work
        self.value: T
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self.work()
        except BaseException as error:
            self.error = error


def watched(work: Callable[[], T], meter: rc.Meter, total: int, console: Console) -> T:
    """Run ``work`` while a bar shows ``meter.scores`` out of ``total``, and the time left.

    The calling thread only looks on, so Ctrl-C reaches it at once. Where the console is no terminal, a
    line tells of each tenth instead.
    """
    call = _Call(work)
    call.start()
    with _shown(console, total) as show:
        while call.is_alive():
            call.join(0.1)
            show(min(meter.scores, total))
        if call.error is None:
            show(total)
    if call.error is not None:
        raise call.error
    return call.value


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
