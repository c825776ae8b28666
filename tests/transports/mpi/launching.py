"""Start an MPI job that may end badly, see what its ranks have written, and leave nothing of it behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mpirun import SOURCE_ROOTS, launcher_environment, mpiexec

PROGRAMS = Path(__file__).with_name("programs")
FOLDER, MARK = "RINGCORE_TEST_FOLDER", "RINGCORE_TEST_JOB"  # variables that all processes of a job have
SOON = 5.0  # seconds that a job's processes may take to vanish after their launcher
Note = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """How a job ended.

    Attributes
    ----------
    code : int or None
        The launcher's exit code; None: it was still running after the time it had.
    ended : float
        When, by `time.time`.
    text : str
        What all have printed.
    notes : list of list of dict
        By rank, what its program has noted; see ``programs/notes.py``.
    left : list of str
        Processes that outlived the launcher, by command; they have been killed.
    files : list of str
        Files in /dev/shm that the ranks had open and that were still there; they have been removed.
    """

    code: int | None
    ended: float
    text: str
    notes: list[list[Note]]
    left: list[str]
    files: list[str]

    def events(self, rank: int, event: str) -> list[Note]:
        """What a rank has noted of one kind."""
        return [note for note in self.notes[rank] if note["event"] == event]

    def the(self, rank: int, event: str) -> Note:
        """The one note of that kind."""
        found = self.events(rank, event)
        assert len(found) == 1, f"rank {rank} noted {len(found)} x {event}: {self.notes}\n{self.text}"
        return found[0]


@cache
def vendor() -> str:
    """Whose launcher it is: 'mpich' (Intel MPI too) or 'openmpi'."""
    version = subprocess.run([mpiexec(), "--version"], capture_output=True, text=True, timeout=30, check=True)
    return "openmpi" if "Open MPI" in version.stdout or "OpenRTE" in version.stdout else "mpich"


def launch(
    folder: Path,
    ranks: int,
    program: str,
    *arguments: str,
    seconds: float = 40.0,
    survive: bool = False,
    env: Mapping[str, str] | None = None,
) -> Job:
    """Run one of the programs on so many ranks.

    Parameters
    ----------
    seconds : float
        After so long the job is killed.
    survive : bool
        Whether the launcher shall let the other ranks live when one has died.
    """
    python = [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments]
    command = [mpiexec(), *(_letting_live() if survive else []), "-n", str(ranks)]
    if survive and vendor() == "mpich":
        # Whatever its options say, Hydra kills all ranks when one dies by a signal; not when it exits by 137.
        command += ["sh", "-c", 'trap : USR1; "$0" "$@"; exit $?']
    return run(folder, ranks, [*command, *python], seconds, env)


def run(
    folder: Path, ranks: int, command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> Job:
    """Run a command whose processes write their notes to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    python_path = os.pathsep.join([*map(str, SOURCE_ROOTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    ours = {FOLDER: str(folder), MARK: mark, "PYTHONPATH": python_path}
    with (folder / "output.txt").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **launcher_environment(), **ours, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        ended = time.time()
        left = _end_all(mark, SOON if code is not None else 0.0)
        process.wait()
        output.seek(0)
        text = output.read()
    notes = [_read(folder / f"rank-{rank}.jsonl") for rank in range(ranks)]
    shared = {file for rank in notes for note in rank for file in note.get("shared", [])}
    return Job(code, ended, text, notes, left, _removed(shared))


def together(*launches: Callable[[], Job]) -> list[Job]:
    """Several jobs at a time, since they mostly wait."""
    with ThreadPoolExecutor(len(launches)) as pool:
        futures = [pool.submit(launch) for launch in launches]
        return [future.result() for future in futures]


def _letting_live() -> list[str]:
    return ["-disable-auto-cleanup"] if vendor() == "mpich" else ["--runtime-options", "continuous"]


def _read(path: Path) -> list[Note]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # its writer may have been killed


def _members(mark: str) -> dict[int, str]:
    """The living processes of a job: pid and command."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if f"{MARK}={mark}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                )
        except OSError:  # it has ended meanwhile
            continue
    return found


def _end_all(mark: str, patience: float) -> list[str]:
    """Wait for a job's processes to end, then kill those that have not, stopped ones too; returns which."""
    until = time.monotonic() + patience
    while (left := _members(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    while members := _members(mark):
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
    return sorted(left.values())


def _removed(files: set[str]) -> list[str]:
    """Those of the files that are there, which they are no longer."""
    found = [file for file in sorted(files) if Path(file).exists()]
    for file in found:
        Path(file).unlink()
    return found
