"""What kernels may ask of the call they work for: how many cores it has, and whether anybody still waits.

The transport and the driver know; neither backends nor the protocol between need to.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

cores: ContextVar[int | None] = ContextVar("ringcore_cores", default=None)
"""Cores for this thread's call and the threads it starts with its context; None: as many as there are."""

abandoned: ContextVar[threading.Event | None] = ContextVar("ringcore_abandoned", default=None)
"""Set when the call has ended by an exception: what is still being computed is of no use."""
