"""How much memory a call needs at its peak, beyond what was there before it."""

from __future__ import annotations

import contextlib
import ctypes
import tracemalloc
from pathlib import Path

_STATUS, _REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Of this process, all its threads together.

    Where Linux lets its own mark of the largest resident memory be set back, that is read: it knows of
    every byte, whoever asked for it. Elsewhere `tracemalloc` counts what Python and NumPy ask for.

    Examples
    --------
    >>> peak = Peak()
    >>> peak.begin()
    >>> size, by = peak.end()
    """

    def begin(self) -> None:
        """From here on."""
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # what the C library keeps for later would hide what is taken
        try:
            _REFS.write_text("5")  # see proc(5)
            self._before: int | None = _resident("VmRSS")
        except (OSError, StopIteration):
            self._before = None
            tracemalloc.start()

    def end(self) -> tuple[int, str]:
        """(bytes, where the figure comes from)."""
        if self._before is not None:
            return max(0, _resident("VmHWM") - self._before), "VmHWM"
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most, "tracemalloc"


def _resident(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
