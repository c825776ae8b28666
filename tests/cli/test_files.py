from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ringcore.cli.errors import InputError
from ringcore.cli.genome import files

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
