"""Reading FASTA, plain or gzip: records as one byte a base."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import dnaio
import numpy as np
from dnaio.readers import FastaReader
from numpy.typing import NDArray

from ringcore.cli.errors import InputError
from ringcore.cli.printable import printable

AMBIGUOUS = 4
"""Code of every IUPAC letter that stands for more than one base, and of every place outside a record."""

_FOREIGN = 255
_GZIP_MAGIC = b"\x1f\x8b"


def _table() -> NDArray[np.uint8]:
    table = np.full(256, _FOREIGN, np.uint8)
    for code, letters in enumerate(("Aa", "Cc", "Gg", "TtUu")):
        table[list(letters.encode())] = code
    table[list(b"RYSWKMBDHVNryswkmbdhvn")] = AMBIGUOUS
    return table


_CODES = _table()


@dataclass(frozen=True)
class RawRecord:
    """A FASTA record: its letters as they stand in the file, and the header's first word as its name.

    The name goes to terminals and into BED columns: it holds no blank, and an escape such as ``\\x1b`` for
    each character that is not printable. So the screen, the files and --record all know it by one name.
    """

    name: str
    letters: str


@dataclass(frozen=True)
class Record:
    """A stretch of a record as codes.

    Attributes
    ----------
    name : str
        The record's name.
    codes : array of uint8, shape (N,)
        0, 1, 2, 3 for A, C, G, T (or U), 4 for an ambiguous base.
    offset : int
        Position in the record, counted from 0, of ``codes[0]``.
    """

    name: str
    codes: NDArray[np.uint8]
    offset: int = 0


def read(path: Path) -> list[RawRecord]:
    """All records of a FASTA file; gzip is recognised by its first two bytes, whatever the file's name.

    Raises
    ------
    InputError
        If the file cannot be read, is cut short, is not FASTA, holds no record or one name twice.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP_MAGIC
            records = list(_parse(gzip.GzipFile(fileobj=file) if packed else file))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist. Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory. Name a FASTA file in it.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path} is a broken or truncated gzip file ({error}). Copy or download it again."
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not FASTA: it is not text. Give a FASTA file, plain or gzip.") from None
    except dnaio.FastaFormatError as error:
        where = "" if error.line is None else f" in line {error.line + 1}"
        raise InputError(
            f"{path} is not FASTA: a record must begin with '>', which is missing{where}. "
            "Give a FASTA file, plain or gzip."
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}. Check its permissions."
        ) from None
    if not records:
        raise InputError(f"{path} holds no record. Give a FASTA file with at least one sequence.")
    _names_differ(path, records)
    return records


def _parse(file: BinaryIO | gzip.GzipFile) -> Iterable[RawRecord]:
    def record(header: str, letters: str, _qualities: None) -> RawRecord:
        return RawRecord(printable((header.split() or ["unnamed"])[0]), letters)

    # dnaio declares its own class of records here; any callable serves, and ours takes non-ASCII headers.
    return FastaReader(cast(BinaryIO, file), sequence_class=cast(Any, record))  # type: ignore[return-value]


def _names_differ(path: Path, records: list[RawRecord]) -> None:
    seen: set[str] = set()
    for record in records:
        if record.name in seen:
            raise InputError(
                f"{path} holds two records named {record.name!r}. Rename one: results go by the name."
            )
        seen.add(record.name)


def to_codes(record: RawRecord) -> NDArray[np.uint8]:
    """Codes of a record's letters, upper or lower case; U counts as T.

    Raises
    ------
    InputError
        If there is no letter, or letters that are no nucleotides, or mostly ambiguous ones: a protein.

    Examples
    --------
    >>> to_codes(RawRecord("x", "acgUN"))
    array([0, 1, 2, 3, 4], dtype=uint8)
    """
    if not record.letters:
        raise InputError(
            f"record {record.name!r} is empty. Remove it from the file, or choose others with --record."
        )
    codes = _CODES[np.frombuffer(record.letters.encode("latin-1", "replace"), np.uint8)]
    foreign = np.flatnonzero(codes == _FOREIGN)
    if foreign.size:
        letters = sorted({record.letters[i] for i in foreign})
        named = ", ".join(map(repr, letters[:8])) + (", ..." if len(letters) > 8 else "")
        raise InputError(
            f"record {record.name!r} holds letters that are no nucleotides: {named}, first at base "
            f"{foreign[0] + 1:,}. Give DNA or RNA (A C G T U and the IUPAC codes), not protein or gaps."
        )
    return _not_protein(record.name, codes, record.letters)


def _not_protein(name: str, codes: NDArray[np.uint8], letters: str) -> NDArray[np.uint8]:
    """Every IUPAC code is an amino acid's letter too; more codes other than N than bases is a protein."""
    unknown = letters.count("N") + letters.count("n")
    plain = int((codes < AMBIGUOUS).sum())
    if codes.size - unknown > 2 * plain:
        raise InputError(
            f"record {name!r} is no nucleotide sequence: only {plain:,} of its {codes.size - unknown:,} "
            "letters other than N are A, C, G, T or U. Give DNA or RNA, not protein."
        )
    return codes
