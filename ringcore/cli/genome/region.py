"""Which records, and which stretch of a record, are looked at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ringcore.cli.errors import InputError
from ringcore.cli.genome.fasta import RawRecord, Record, to_codes

_REGION = re.compile(r"(?:(?P<name>.+):)?(?P<start>[\d,]+)-(?P<end>[\d,]+)")


@dataclass(frozen=True)
class Region:
    """Bases start..end of a record, counted from 1, both included, as samtools writes them."""

    name: str | None
    start: int
    end: int


def parse(text: str) -> Region:
    """Read ``NAME:START-END`` or ``START-END``; commas in numbers are fine.

    Examples
    --------
    >>> parse("chr1:1,001-2,000")
    Region(name='chr1', start=1001, end=2000)
    """
    match = _REGION.fullmatch(text.strip())
    digits = [match[part].replace(",", "") for part in ("start", "end")] if match else []
    if match is None or not all(digits):
        raise InputError(
            f"--region must be NAME:START-END or START-END. Got {text!r}. Example: chr1:1001-2000."
        )
    region = Region(match["name"], int(digits[0]), int(digits[1]))
    if not 1 <= region.start <= region.end:
        raise InputError(
            f"--region must have 1 <= START <= END: bases count from 1. Got {text!r}. "
            "Example: chr1:1001-2000."
        )
    return region


def select(records: Sequence[RawRecord], names: Sequence[str], region: str | None) -> list[Record]:
    """The chosen stretches, as codes, in the file's order.

    Parameters
    ----------
    records : sequence of RawRecord
        All records of the file.
    names : sequence of str
        The chosen records; all of them if empty.
    region : str, optional
        A stretch of one record.

    Raises
    ------
    InputError
        If a record is not there, the region lies outside, or letters are no nucleotides.
    """
    for name in names:
        _known(name, records, "--record")
    chosen = [record for record in records if not names or record.name in names]
    if region is None:
        return [Record(record.name, to_codes(record)) for record in chosen]
    wanted = parse(region)
    if wanted.name is not None:
        _known(wanted.name, records, "--region")
        chosen = [record for record in chosen if record.name == wanted.name]
    if len(chosen) != 1:
        raise InputError(
            f"--region must name one record. Got {region!r}, which fits {len(chosen)} of the records chosen. "
            f"Write NAME:START-END with one of: {_listed(records)}."
        )
    codes = to_codes(chosen[0])
    if wanted.end > codes.size:
        raise InputError(
            f"--region must lie within record {chosen[0].name!r}, which has {codes.size:,} bases. "
            f"Got {region!r}. Choose an END of at most {codes.size}."
        )
    return [Record(chosen[0].name, codes[wanted.start - 1 : wanted.end], wanted.start - 1)]


def _known(name: str, records: Sequence[RawRecord], option: str) -> None:
    if all(record.name != name for record in records):
        raise InputError(
            f"{option} must name a record of the file. Got {name!r}. There is: {_listed(records)}."
        )


def _listed(records: Sequence[RawRecord]) -> str:
    more = f", ... ({len(records):,} in all)" if len(records) > 5 else ""
    return ", ".join(record.name for record in records[:5]) + more
