"""Results appear complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ringcore.cli.errors import InputError
from ringcore.cli.stop import held

_HIDDEN = ".ringcore-"


@contextmanager
def claimed(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Make sure that files of these names can be written to ``folder``, before the work begins.

    Creates the folder where it does not exist; if the block fails, the folders it created go again.

    Raises
    ------
    InputError
        If the folder cannot be created or written to, or something that cannot be replaced bears a name.
    """
    new = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder, prefix=_HIDDEN):
                pass
        except OSError as error:
            raise _unwritable(folder, error) from error
        _check_replaceable(folder, names)
        yield
    except BaseException:
        with held():
            for path in new:  # innermost first; one that holds something stays
                with contextlib.suppress(OSError):
                    path.rmdir()
        raise


def publish(folder: Path, contents: Mapping[str, bytes], done: Callable[[], object] = lambda: None) -> None:
    """Write all files, or none if the system refuses or the command is stopped.

    They are written to a hidden folder inside ``folder`` and reach the disk; only when all are there do
    they take their places, while signals wait. A reader sees an old file or a whole new one, never a part.
    The files that were there are kept until all new ones are in place, and come back if one cannot be.
    Only the end of the machine or SIGKILL in these milliseconds leave a mixture; then the hidden
    folder has the old files.

    Parameters
    ----------
    folder : Path
        A folder that exists.
    contents : mapping
        Names and what the files hold.
    done : callable, optional
        Called when all files are in place, before a signal is heard.

    Raises
    ------
    InputError
        If the system refuses, say because the disk is full.
    """
    try:
        with ExitStack() as stack:
            with held():
                hidden = Path(tempfile.mkdtemp(dir=folder, prefix=_HIDDEN))
                stack.callback(_remove, hidden)
            (hidden / "old").mkdir()
            for name, content in contents.items():
                _write(hidden / name, content)
            with held():
                _check_replaceable(folder, contents)
                _place(folder, hidden, list(contents))
                done()
        _flush_folder(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _check_replaceable(folder: Path, names: Iterable[str]) -> None:
    """Refuse names that are no plain files, and files that the system lets nobody rename.

    A file may be immutable, or another user's in a folder such as /tmp, though the folder can be
    written to. Renaming it to the name of a folder must fail; how it fails tells, and nothing moves.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=_HIDDEN) as taken:
        for name in names:
            path = folder / name
            if not os.path.lexists(path):
                continue
            if path.exists() and not path.is_file():
                raise InputError(f"--out {folder} holds {name}, which is no file. Choose another folder.")
            try:
                path.rename(taken)
            except OSError as error:
                if error.errno in (errno.EPERM, errno.EACCES, errno.EROFS) and os.name == "posix":
                    raise InputError(
                        f"--out {folder} holds {name}, which cannot be replaced: {error.strerror}. "
                        "Choose another folder."
                    ) from error


def _place(folder: Path, hidden: Path, names: list[str]) -> None:
    """Give all new files their names; if one cannot have it, put back what was there."""
    touched: list[str] = []
    try:
        for name in names:
            touched.append(name)
            _keep(folder / name, hidden / "old" / name)
            (hidden / name).replace(folder / name)
    except BaseException:
        for name in touched:
            _put_back(folder / name, hidden / "old" / name, fresh=not (hidden / name).exists())
        raise


def _keep(path: Path, backup: Path) -> None:
    """A second name for an old file, so that it stays; the only name where there are no hard links."""
    if not os.path.lexists(path):
        return
    try:
        os.link(path, backup, follow_symlinks=False)
    except (OSError, NotImplementedError):
        backup.touch()  # a folder cannot be renamed to a file: only a file ever moves here
        try:
            path.replace(backup)
        except OSError:
            backup.unlink()
            raise


def _put_back(path: Path, backup: Path, *, fresh: bool) -> None:
    """Undo what was done to one name; what cannot be undone must not keep the others from it."""
    with contextlib.suppress(OSError):
        if os.path.lexists(backup):
            backup.replace(path)
        elif fresh:
            path.unlink()


def _remove(hidden: Path) -> None:
    with held():
        shutil.rmtree(hidden, ignore_errors=True)


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
