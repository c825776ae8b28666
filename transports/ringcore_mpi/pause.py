"""How long to wait between two looks at MPI."""

from __future__ import annotations

import os
import time

_EAGER_SECONDS = 0.001
_LONGEST = 0.0005


class Pause:
    """First only let others run, then sleep: what comes soon is not kept waiting, what is late costs no core.

    Never longer than 0.5 ms: data moves while somebody looks.
    """

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._seconds = 0.00002

    def __call__(self) -> None:
        """Wait a little."""
        if time.perf_counter() - self._begin < _EAGER_SECONDS:
            _yield()
            return
        time.sleep(self._seconds)
        self._seconds = min(_LONGEST, 1.5 * self._seconds)


def _yield() -> None:
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)
