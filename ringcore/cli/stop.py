"""Ctrl-C and SIGTERM as one exception, so that files and folders are cleaned up on both."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """The user or the batch system asked the command to stop."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in the main thread on SIGINT and SIGTERM while the block runs.

    Elsewhere than in the main thread Python allows no handlers, and the block just runs.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped("stopped by " + signal.Signals(number).name, 128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
