"""Standard output and error that a closed pipe, a full disk or a poor encoding cannot break.

What a command computes is in its files. A screen that cannot be written to must not cost them, nor end
in a traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

BROKEN_PIPE = 128 + 13
"""Exit code of what SIGPIPE ends, as shells have it."""


class Sturdy:
    """A text stream whose writes never fail: it keeps the first error, and from then on nothing is written.

    Everything else is the stream's own.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write, with escapes for the characters that the stream's encoding lacks."""
        if self.error is None:
            try:
                try:
                    self.stream.write(text)
                except UnicodeEncodeError:
                    encoding = self.stream.encoding
                    self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            except OSError as error:
                self._lost(error)
        return len(text)

    def flush(self) -> None:
        """Hand on what is buffered."""
        if self.error is None:
            try:
                self.stream.flush()
            except OSError as error:
                self._lost(error)

    def _lost(self, error: OSError) -> None:
        self.error = error
        # What is still buffered must go somewhere when the interpreter flushes it at its end.
        with contextlib.suppress(OSError, ValueError):
            handle = self.stream.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, handle)
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def sturdy() -> Iterator[tuple[Sturdy, Sturdy]]:
    """Standard output and error as `Sturdy` streams while the block runs; yields the two."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _fill_closed()
    before = sys.stdout, sys.stderr
    nowhere = open(os.devnull, "w")  # noqa: PTH123, SIM115 - closed below
    both = Sturdy(before[0] or nowhere), Sturdy(before[1] or nowhere)
    sys.stdout, sys.stderr = both
    try:
        yield both
    finally:
        for stream in both:
            stream.flush()
        sys.stdout, sys.stderr = before
        nowhere.close()


def _fill_closed() -> None:
    """Give the closed ones of handles 0, 1, 2 to the null device, lest a result file gets one.

    Whatever a library prints to handle 2 would end up in that file.
    """
    handle = os.open(os.devnull, os.O_RDWR)
    while handle <= 2:
        handle = os.dup(handle)
    os.close(handle)
