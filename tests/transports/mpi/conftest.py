"""The programs are for mpiexec to start, not for pytest to read."""

from __future__ import annotations

collect_ignore = ["programs"]
