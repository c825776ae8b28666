"""Results appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ringcore.cli.errors import InputError

_HIDDEN = ".ringcore-"


@contextmanager
def claimed(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Make sure that files of these names can be written to ``folder``, before the work begins.

    Creates the folder where it does not exist; if the block fails, the folders it created go again.

    Raises
    ------
    InputError
        If the folder cannot be created or written to, or something other than a file bears a name.
    """
    new = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder, prefix=_HIDDEN):
                pass
        except OSError as error:
            raise _unwritable(folder, error) from error
        for name in names:
            if (folder / name).exists() and not (folder / name).is_file():
                raise InputError(f"--out {folder} holds {name}, which is no file. Choose another folder.")
        yield
    except BaseException:
        for path in new:  # innermost first; one that holds something stays
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def publish(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files, or none if writing fails.

    They are written to a hidden folder inside ``folder`` and reach the disk; only when all are there do
    they take their places. A reader sees an old file or a whole new one, never a part.

    Raises
    ------
    InputError
        If the system refuses, say because the disk is full.
    """
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=_HIDDEN) as hidden:
            for name, content in contents.items():
                _write(Path(hidden, name), content)
            for name in contents:
                Path(hidden, name).replace(folder / name)
        _flush_folder(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"--out {folder} cannot be written to: {error.strerror or error}. "
        "Choose a folder that you may write to, on a disk with space left."
    )


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Make the new names durable, where the system lets a folder be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
