"""A function that is compiled once on a machine: kept on disk, and by one process while others wait."""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any, TextIO

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba import types

from ringcore import activation
from ringcore_numpy.compiled.options import OPTIONS

_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.02


class Kernel:
    """A numba function, compiled or read from disk at its first call with a kind of arguments.

    numba keeps its files beside the source, or in ``NUMBA_CACHE_DIR``, or in the user's cache folder. It
    looks at one source file only to find out whether they are out of date, so the function's name there
    holds a digest of all of them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: dict[str, Any] = {}
        self._lock = Lock()

    def of(self, kind: str, *args: Any) -> Callable[..., Any]:
        """The compiled function for arguments of the types of these, which ``kind`` names."""
        if kind not in self._compiled:
            with self._lock:  # of threads; `_alone` is for processes
                if kind not in self._compiled:
                    self._compiled[kind] = _compiled(self._function, kind, tuple(map(_type_of, args)))
        return self._compiled[kind]  # type: ignore[no-any-return]


def _compiled(function: Callable[..., Any], kind: str, argument_types: tuple[Any, ...]) -> Any:
    """A numba function of its own for one kind, since what it is compiled for is then fixed."""
    own = FunctionType(function.__code__, function.__globals__, function.__name__)
    own.__qualname__ = f"{function.__qualname__}_{kind}_{_digest()}"
    own.__module__ = function.__module__
    folder = None
    try:
        compiled = numba.njit(cache=True, **OPTIONS)(own)
        folder = Path(compiled.stats.cache_path)
        with _alone(folder, f"{own.__qualname__}\n"):
            compiled.compile(argument_types)
    except Exception:  # the cache: nowhere to write, no room, a damaged file. Else it is raised here again
        compiled = numba.njit(**OPTIONS)(own)
        compiled.compile(argument_types)
        if folder is not None:
            _remove(folder, own.__qualname__)
    compiled.disable_compile()  # what comes is converted to these types
    return compiled


def _remove(folder: Path, name: str) -> None:
    """Delete a kernel's files, so that the next process can write good ones."""
    with suppress(OSError):
        for path in folder.glob(f"*.{name}-*"):
            path.unlink(missing_ok=True)


def _type_of(x: Any) -> Any:
    """Numba's type, by which read-only arrays may have any strides: one version does for all."""
    kind = numba.typeof(x)
    if isinstance(kind, types.Array) and not kind.mutable:
        return kind.copy(layout="A")
    return kind


@contextmanager
def _alone(folder: Path, entry: str) -> Iterator[None]:
    """Let one process do what is inside, if ``entry`` is new; those that wait for it do it after, together.

    numba's files bear two writers badly, and a node full of ranks that all compile the same takes longer.
    """
    with ExitStack() as stack:
        file = None
        with suppress(OSError):  # no lock to be had there: each for itself
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((folder / "ringcore-kernels.txt").open("a+"))
            if not _locked(file) or entry in file:
                _unlock(file)
                file = None
        try:
            yield
            if file is not None:
                with suppress(OSError):
                    file.write(entry)
                    file.flush()
        finally:
            if file is not None:
                _unlock(file)  # not by closing alone: a process forked meanwhile has it open, too


def _locked(file: TextIO) -> bool:
    """Wait for the lock, but not for somebody who hangs."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(0)
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _unlock(file: TextIO) -> None:
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)


@cache
def _digest() -> str:
    """Of all that compiled code depends on: this folder, `ringcore.activation`, numba, the processor."""
    digest = hashlib.sha256(f"{numba.__version__} {get_host_cpu_name()} {get_host_cpu_features()}".encode())
    for path in [*sorted(Path(__file__).parent.glob("*.py")), Path(activation.__file__)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
