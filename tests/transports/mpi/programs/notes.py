"""What the programs of this folder have in common: notes that survive whatever happens to their writer."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mpi4py

mpi4py.rc.finalize = False

from mpi4py import MPI  # noqa: E402

RANK, SIZE = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
_FILE = Path(os.environ["RINGCORE_TEST_FOLDER"]) / f"rank-{RANK}.jsonl"


def note(event: str, **facts: Any) -> None:
    """Write a line, and have it on disk."""
    with _FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": event, "at": time.time(), **facts}) + "\n")


def note_shared_memory() -> None:
    """Which files in /dev/shm this process has open by now."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line[line.index("/dev/shm/") :] for line in lines if "/dev/shm/" in line}
    note("shared memory", shared=sorted(path for path in paths if not path.endswith("(deleted)")))


@contextmanager
def noted(event: str = "error") -> Iterator[None]:
    """Note what the block raises, and let it go on."""
    try:
        yield
    except BaseException as error:
        note(event, type=type(error).__name__, text=str(error), peer=getattr(error, "peer", None))
        raise


def _finalize() -> None:
    """Instead of mpi4py's own call. It was registered first, so that it is called last."""
    note("finalize")
    MPI.Finalize()
    note("finalized")


atexit.register(_finalize)
