"""A screen that cannot be written to costs neither the files nor a traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ringcore.cli.genome.lead import FILES
from ringcore.cli.printable import printable
from ringcore.cli.streams import Sturdy
from tests.cli.genomes import random_bases

FULL = Path("/dev/full")
WAYS: Mapping[str, tuple[int, int]] = {  # how, exit code, lines of error
    "2>&-": (0, 0),
    ">&-": (0, 0),
    "<&- >&- 2>&-": (0, 0),
    "2>/dev/full": (0, 0),
    ">/dev/full": (1, 1),
    ">/dev/full 2>&1": (1, 0),
    "> >(exec true)": (141, 0),
}


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("way", WAYS)
def test_a_lost_screen(way: str, fasta: Callable[..., Path], tmp_path: Path) -> None:
    code, told = WAYS[way]
    path, out = fasta({"x": random_bases(50, seed=1)}), tmp_path / "out"
    result = subprocess.run(
        ["bash", "-c", f'"$0" -m ringcore genome "$1" --out "$2" {way}', sys.executable, path, out],
        capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert result.returncode == code
    assert sorted(entry.name for entry in out.iterdir()) == sorted(FILES)
    assert (out / "repeats.bed").read_text().startswith("#chrom")
    assert (out / "map.png").read_bytes().startswith(b"\x89PNG") and (out / "summary.json").stat().st_size
    assert "Traceback" not in result.stderr and "Exception ignored" not in result.stderr
    assert result.stderr.count("cannot be written to: No space left on device") == told


class Broken(io.StringIO):
    def write(self, text: str, /) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_the_first_error_is_kept() -> None:
    stream = Sturdy(Broken())
    assert stream.write("x") == 1
    stream.write("y")
    stream.flush()
    assert isinstance(stream.error, BrokenPipeError)


def test_letters_that_the_encoding_lacks_become_escapes() -> None:
    content = io.BytesIO()
    stream = Sturdy(io.TextIOWrapper(content, encoding="ascii"))
    stream.write("caf\xe9 \u2502\n")
    stream.flush()
    assert content.getvalue() == b"caf\\xe9 \\u2502\n" and stream.error is None


@pytest.mark.parametrize(
    "text", ["\x00", "\x1b]0;title\x07", "\x9b", "\u202e", "\u2028", "\ud800", "\r", "\n"]
)
def test_nothing_that_commands_a_terminal_is_printable(text: str) -> None:
    assert printable(f"a b{text}\xe9") == f"a b{text}\xe9".encode("unicode_escape").decode().replace(
        "\\xe9", "\xe9"
    )
    assert printable(text).isprintable() and printable(text).isascii()
