from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ringcore.cli.errors import InputError
from ringcore.cli.genome import files
from ringcore.cli.stop import Stopped, stoppable

CONTENTS = {"a.txt": b"first", "b.txt": b"second"}


def test_files_appear_with_their_contents_and_nothing_else(tmp_path: Path) -> None:
    files.publish(tmp_path, CONTENTS)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == CONTENTS


def test_new_files_have_the_permissions_that_new_files_have(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.publish(tmp_path, CONTENTS)
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("failing", ["a.txt", "b.txt"])
def test_a_failing_write_leaves_the_old_files_and_no_others(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_bytes(b"old")
    write = files._write

    def full(path: Path, content: bytes) -> None:
        if path.name == failing:
            path.write_bytes(content[:2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(files, "_write", full)
    with pytest.raises(InputError, match="No space left on device"):
        files.publish(tmp_path, CONTENTS)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.txt": b"old"}


def test_no_file_takes_its_place_before_all_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, write = Path.replace, files._write
    events: list[str] = []

    def note_write(path: Path, content: bytes) -> None:
        events.append("write")
        write(path, content)

    def note_replace(source: Path, target: Path) -> Path:
        events.append("replace")
        return replace(source, target)

    monkeypatch.setattr(files, "_write", note_write)
    monkeypatch.setattr(Path, "replace", note_replace)
    files.publish(tmp_path, CONTENTS)
    assert events == ["write", "write", "replace", "replace"]


def test_bytes_reach_the_disk_before_a_file_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        flushed.append(os.fstat(handle).st_size)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    files.publish(tmp_path, CONTENTS)
    assert flushed[:2] == [5, 6]


def fail_in(out: Path) -> None:
    assert out.is_dir()
    raise ZeroDivisionError


def test_a_folder_is_made_and_goes_again_if_the_work_fails(tmp_path: Path) -> None:
    out = tmp_path / "new" / "deep"
    with pytest.raises(ZeroDivisionError), files.claimed(out, ()):
        fail_in(out)
    assert list(tmp_path.iterdir()) == []
    with files.claimed(out, ()):
        pass
    assert out.is_dir()


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), files.claimed(tmp_path, ()):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_work_is_not_blamed_on_the_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="elsewhere"), files.claimed(tmp_path, ()):
        raise OSError("elsewhere")


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "out" / "map.png").mkdir(parents=True)
    bad: dict[str, Any] = {
        "file": "cannot be written to",
        "file/deep": "cannot be written to",
        "out": "is no file",
    }
    for name, message in bad.items():
        with pytest.raises(InputError, match=message), files.claimed(tmp_path / name, ["map.png"]):
            raise AssertionError("must not begin")


# ------------------------------------------------------------------ all or none


def state(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("old", [[], ["a.txt"], ["b.txt"], ["a.txt", "b.txt"]])
@pytest.mark.parametrize("failing", ["a.txt", "b.txt"])
@pytest.mark.parametrize("links", [True, False])
def test_where_one_file_cannot_take_its_place_all_old_ones_come_back(
    tmp_path: Path, old: list[str], failing: str, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in old:
        (tmp_path / name).write_bytes(b"old " + name.encode())
    before, replace = state(tmp_path), Path.replace

    def refuse(source: Path, target: Path) -> Path:
        if source.parent.parent == tmp_path and target == tmp_path / failing:  # not one that comes back
            raise OSError(errno.EIO, "Input/output error")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", refuse)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(InputError, match="Input/output error"):
        files.publish(tmp_path, CONTENTS)
    assert state(tmp_path) == before
    monkeypatch.undo()
    files.publish(tmp_path, CONTENTS)
    assert state(tmp_path) == CONTENTS


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("links", [True, False])
def test_a_folder_that_came_meanwhile_stays_and_no_file_changes(
    tmp_path: Path, name: str, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(entry for entry in CONTENTS if entry != name)
    (tmp_path / other).write_bytes(b"old")
    (tmp_path / name).mkdir()
    (tmp_path / name / "treasure").write_text("gold")
    with pytest.raises(InputError, match="is no file"):
        files.publish(tmp_path, CONTENTS)
    monkeypatch.setattr(files, "_check_replaceable", lambda *_: None)  # it comes after the last look
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(InputError):
        files.publish(tmp_path, CONTENTS)
    assert state(tmp_path) == {other: b"old", name: None}
    assert (tmp_path / name / "treasure").read_text() == "gold"


@pytest.fixture
def immutable(tmp_path: Path) -> Any:
    path = tmp_path / "b.txt"
    path.write_bytes(b"old")
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+i", path], capture_output=True).returncode:
        pytest.skip("this user cannot make a file immutable here")
    yield path
    subprocess.run([chattr, "-i", path], check=True)


def test_an_immutable_file_is_found_before_the_work_and_once_more_after_it(
    tmp_path: Path, immutable: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"old")
    refused = pytest.raises(InputError, match=r"holds b.txt, which cannot be replaced")
    with refused, files.claimed(tmp_path, CONTENTS):
        raise AssertionError("must not begin")
    with pytest.raises(InputError, match=r"holds b.txt, which cannot be replaced"):
        files.publish(tmp_path, CONTENTS)
    assert state(tmp_path) == {"a.txt": b"old", "b.txt": b"old"}


def test_the_look_before_the_work_moves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"old")
    (tmp_path / "b.txt").symlink_to("nowhere")
    inode = (tmp_path / "a.txt").stat().st_ino
    with files.claimed(tmp_path, CONTENTS):
        assert {path.name for path in tmp_path.iterdir()} == set(CONTENTS)
        assert (tmp_path / "a.txt").stat().st_ino == inode
        assert (tmp_path / "b.txt").is_symlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["write", "replace", "done"])
def test_a_signal_at_any_moment_leaves_all_or_none(
    tmp_path: Path, number: signal.Signals, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_bytes(b"old")
    replace, write = Path.replace, files._write
    done: list[bool] = []

    def signalled(at: str, work: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if at == moment:
                signal.raise_signal(number)
            return work(*arguments)

        return call

    monkeypatch.setattr(files, "_write", signalled("write", write))
    monkeypatch.setattr(Path, "replace", signalled("replace", replace))
    with pytest.raises(Stopped) as stopped, stoppable():
        files.publish(tmp_path, CONTENTS, signalled("done", lambda: done.append(True)))
    assert stopped.value.exit_code == 128 + number
    assert state(tmp_path) == ({"a.txt": b"old"} if moment == "write" else CONTENTS)
    assert bool(done) == (moment != "write")
