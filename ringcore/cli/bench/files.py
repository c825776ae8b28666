"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from ringcore.cli.errors import InputError


def check(option: str, path: Path) -> None:
    """Make sure, before the work begins, that a file can be written.

    Raises
    ------
    InputError
        If it cannot.
    """
    path = path.resolve()  # a link stays one
    if path.is_dir():
        raise InputError(f"{option} must be a file. Got {path}, a folder. Choose a name in it.")
    if path.exists() and not path.is_file():
        raise InputError(f"{option} must be a file. Got {path}, a device or a pipe. Choose another name.")
    try:
        with tempfile.TemporaryFile(dir=path.parent, prefix=".ringcore-"):
            pass
    except OSError as error:
        raise _unwritable(option, path, error) from error


def write(option: str, path: Path, content: bytes) -> None:
    """Write it: a reader sees the old one or the whole new one.

    Raises
    ------
    InputError
        If the system refuses; the old file is still there.
    """
    path = path.resolve()
    name = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=".ringcore-", delete=False) as file:
            name = file.name
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException as error:
        if name is not None:
            with contextlib.suppress(OSError):
                Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(option, path, error) from error
        raise


def _umask() -> int:
    """What a file made in the ordinary way would not be allowed; can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _unwritable(option: str, path: Path, error: OSError) -> InputError:
    return InputError(
        f"{option} {path} cannot be written to: {error.strerror or error}. "
        "Choose a folder that you may write to."
    )
