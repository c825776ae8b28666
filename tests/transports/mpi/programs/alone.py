"""A process that the launcher of another MPI has started, by its variables: python alone.py."""

from __future__ import annotations

from notes import MPI, note_shared_memory, noted

import ringcore as rc

note_shared_memory()
with noted():
    rc.Ring(MPI.COMM_WORLD)
