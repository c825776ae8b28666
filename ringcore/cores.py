"""How many cores a call may keep busy: the transport knows who shares the machine, kernels ask here."""

from __future__ import annotations

from contextvars import ContextVar

cores: ContextVar[int | None] = ContextVar("ringcore_cores", default=None)
"""Cores for this thread's call and the threads it starts with its context; None: as many as there are."""
