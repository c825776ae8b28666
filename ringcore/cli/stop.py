"""Ctrl-C, SIGTERM and the end of another rank as one exception: files and folders are cleaned up on all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REFUSED = 2
"""Exit code of a command that cannot be done."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The user or the batch system asked the command to stop, or another rank cannot go on.

    Attributes
    ----------
    exit_code : int
        128 plus the signal's number, as shells have it; or 2.
    outcome : str
        What had happened to the files by then, as a sentence.
    aloud : bool
        Whether to tell it on whatever rank this is; else rank 0 speaks for all.
    """

    def __init__(
        self, message: str, exit_code: int, *, outcome: str = "Nothing was written.", aloud: bool = False
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.outcome = outcome
        self.aloud = aloud


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped("stopped by " + signal.Signals(number).name, 128 + number)


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in the main thread on SIGINT and SIGTERM while the block runs.

    Elsewhere than in the main thread Python allows no handlers, and the block just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Put SIGINT and SIGTERM off until the block has ended; for blocks of milliseconds.

    Blocking them in this thread would not do: the system would hand them to another thread of the
    process, and Python runs the handler here all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
