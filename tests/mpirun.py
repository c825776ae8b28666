"""Start processes under the mpiexec of this environment, and end them all."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE_ROOTS = [ROOT, ROOT / "backends", ROOT / "transports"]


class Ended(NamedTuple):
    """How a run ended: the launcher's exit code (None: it had to be killed), and what all ranks printed."""

    code: int | None
    text: str


def mpiexec() -> str:
    """The launcher that belongs to this interpreter's MPI; skips the test where there is none."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed, or no mpiexec")
    return found


def mpirun(
    ranks: int,
    *command: str,
    timeout: float = 60.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run ``python *command`` on so many ranks; whatever is left after ``timeout`` seconds is killed."""
    process = subprocess.Popen(
        [mpiexec(), "-n", str(ranks), sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **launcher_environment(), "PYTHONPATH": _python_path(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=timeout)
        return Ended(process.returncode, text)
    except subprocess.TimeoutExpired:
        return Ended(None, _killed(process))


def _killed(process: subprocess.Popen[str]) -> str:
    """What was printed until now. A launcher that is asked to end ends its ranks; a killed one may not."""
    process.terminate()
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate(timeout=10)[0]


def launcher_environment() -> dict[str, str]:
    """The variables in ``.ci/mpi.env``."""
    lines = (ROOT / ".ci" / "mpi.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _python_path() -> str:
    return os.pathsep.join([*map(str, SOURCE_ROOTS), *filter(None, [os.environ.get("PYTHONPATH")])])
