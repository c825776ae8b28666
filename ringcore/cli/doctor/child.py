"""MPI's facts from a process of its own: a crash, or an MPI that never returns, becomes an answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from ringcore.cli.doctor import mpi_facts
from ringcore.cli.doctor.mpi_facts import MARK, MpiFacts

SECONDS = 20
ALONE = {"OMPI_MCA_btl": "self"}
"""Open MPI without a launcher leaves a file in /dev/shm behind, unless it needs no shared memory."""


class Unanswered(Exception):
    """MPI did not start; why, in one line."""


class Unloadable(Unanswered):
    """mpi4py is there, but no MPI library that it could load."""


def ask(seconds: int = SECONDS, python: str = sys.executable) -> MpiFacts:
    """Start MPI in a child process and return what it says.

    Raises
    ------
    Unloadable
        If mpi4py finds no MPI library.
    Unanswered
        If the child crashed, or took longer than ``seconds``.

    Notes
    -----
    Handles stay open in the child: a launcher's process management may be one of them.
    """
    script = str(Path(mpi_facts.__file__))
    try:
        done = subprocess.run(
            [python, "-P", script, str(seconds)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            close_fds=False,
            env=ALONE | os.environ,
            timeout=seconds + 5,  # its own alarm comes first
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(f"does not start within {seconds + 5} s") from None
    answers = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not answers:
        raise Unanswered(_end(done.returncode, done.stderr, seconds))
    answer = json.loads(answers[-1].removeprefix(MARK))
    if "error" in answer:
        raise Unloadable(answer["error"])
    return MpiFacts(**answer)


def _end(code: int, stderr: str, seconds: int) -> str:
    """How a child without an answer ended.

    Examples
    --------
    >>> _end(16, "Fatal error in MPI_Init:\\n  PMI version PMIx is not supported.\\n", 10)
    'ends its process with code 16: "Fatal error in MPI_Init:" ... "PMI version PMIx is not supported."'
    >>> _end(-14, "", 10)
    'does not start within 10 s'
    """
    if code == -signal.SIGALRM:
        return f"does not start within {seconds} s"
    how = f"code {code}" if code >= 0 else signal.Signals(-code).name
    lines = [line.strip(" -\t") for line in stderr.splitlines()]
    said = [line for line in lines if line]
    shown = list(dict.fromkeys([*said[:1], *said[-1:]]))
    quoted = " ... ".join(f'"{line}"' for line in shown)
    return f"ends its process with {how}" + (f": {quoted}" if quoted else "")
