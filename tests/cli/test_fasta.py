from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from ringcore.cli.errors import InputError
from ringcore.cli.genome.fasta import RawRecord, read, to_codes


@pytest.mark.parametrize("name", ["plain.fa", "plain.fa.gz", "plain"])
@pytest.mark.parametrize("packed", [False, True])
def test_gzip_is_told_by_its_magic_bytes_and_not_by_the_name(tmp_path: Path, name: str, packed: bool) -> None:
    content = b">one first record\nACGT\nAC\n\n>two\nGG\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    assert read(tmp_path / name) == [RawRecord("one", "ACGTAC"), RawRecord("two", "GG")]


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(gzip.compress(b">one\nAC") + gzip.compress(b"GT\n"))
    assert read(tmp_path / "x") == [RawRecord("one", "ACGT")]


def test_windows_line_ends_and_a_header_beyond_ascii(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(">gène M\u00fcller\r\nACGT\r\nAC\r\n".encode())
    assert read(tmp_path / "x") == [RawRecord("gène", "ACGTAC")]


def test_codes_of_every_letter() -> None:
    letters = "ACGTUacgtuRYSWKMBDHVNryswkmbdhvn" + "ACGT" * 20
    expected = [0, 1, 2, 3, 3, 0, 1, 2, 3, 3] + [4] * 22 + [0, 1, 2, 3] * 20
    assert to_codes(RawRecord("x", letters)).tolist() == expected


def test_codes_are_a_byte_each() -> None:
    assert to_codes(RawRecord("x", "NNNN")).dtype == np.uint8


@pytest.mark.parametrize(
    ("letters", "message"),
    [
        ("", "record 'x' is empty"),
        ("ACGTMEFIL", r"no nucleotides: 'E', 'F', 'I', 'L', first at base 6"),
        ("ACG-T", "no nucleotides: '-', first at base 4"),
        ("AC GT", "no nucleotides: ' '"),
        ("ACGT*", r"no nucleotides: '\*'"),
        ("ACGT\u0100", "no nucleotides: '\u0100', first at base 5"),
        ("ACGT\x00", "no nucleotides"),
        ("MKVHSWRDNKSSGA", "only 2 of its 13 letters other than N"),
    ],
)
def test_letters_that_are_no_nucleotides(letters: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_codes(RawRecord("x", letters))
