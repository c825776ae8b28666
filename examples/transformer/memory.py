"""How much memory this process has; ranks that are threads share it."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def resident() -> int:
    """Bytes of memory now; as `peak` where the system does not say."""
    return _status("VmRSS") or peak()


def peak() -> int:
    """Most bytes of memory at any time so far."""
    kib_or_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _status("VmHWM") or kib_or_bytes * (1 if sys.platform == "darwin" else 1024)


def _status(field: str) -> int | None:
    """A field of Linux's /proc/self/status; getrusage there begins with the peak of whoever started us."""
    try:
        found = re.search(rf"^{field}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
