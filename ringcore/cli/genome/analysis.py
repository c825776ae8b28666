"""One stretch of genome from bases to repeats, and the figures that sum it up."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ringcore as rc
from ringcore.cli.genome import attend, encode, repeats, settings
from ringcore.cli.genome.attend import Echo
from ringcore.cli.genome.fasta import AMBIGUOUS, Record
from ringcore.cli.genome.ranks import Ranks
from ringcore.cli.genome.repeats import Repeats
from ringcore.cli.genome.settings import Settings


@dataclass(frozen=True)
class Analysis:
    """A record (or a region of it), what was asked, what attention said, and the repeats that follow."""

    record: Record
    settings: Settings
    echo: Echo
    repeats: Repeats
    attention_seconds: float
    repeats_seconds: float

    @property
    def longest_first(self) -> NDArray[np.intp]:
        """Indices of the repeats, longest first, then from left to right."""
        return np.argsort(-self.repeats.length, kind="stable")


def analyse(record: Record, asked: Settings, ranks: Ranks, meter: rc.Meter) -> Analysis:
    """Have the ranks compute the attention, then join partners into repeats."""
    begin = time.perf_counter()
    echo = ranks.echo(record.codes, asked, meter)
    middle = time.perf_counter()

    def join() -> Repeats:
        found = repeats.find(encode.both_strands(record.codes), echo.partner, asked.context)
        return repeats.confirmed(found, echo.partner, echo.copies, asked.context)

    found = ranks.aside(join)
    return Analysis(record, asked, echo, found, middle - begin, time.perf_counter() - middle)


def figures(analysis: Analysis) -> dict[str, Any]:
    """The numbers of one record for ``summary.json``; positions in the record's coordinates, from 0.

    A mean over no base is None.
    """
    record, asked, found, bits = analysis.record, analysis.settings, analysis.repeats, analysis.echo.bits
    bases, known = record.codes.size, record.codes < AMBIGUOUS
    inside = found.covered(bases)
    same = settings.same_base(record.codes)
    longest = analysis.longest_first[:10]
    rows = found.rows()
    return {
        "name": record.name,
        "start": record.offset,
        "end": record.offset + bases,
        "bases": bases,
        "ambiguous_bases": int(bases - known.sum()),
        "context": asked.context,
        "sharpness": asked.sharpness,
        "prior_mass": asked.prior_mass,
        "background": settings.background(bases, asked.context, asked.sharpness),
        "background_at_this_composition": settings.background(bases, asked.context, asked.sharpness, same),
        "queries": bases + 1,
        "keys": 2 * (bases + 1),
        "scores": attend.scores(bases),
        "repeats": len(found),
        "repeats_same_strand": int((~found.reverse).sum()),
        "repeats_reverse_complement": int(found.reverse.sum()),
        "palindromes": int(found.palindrome.sum()),
        "bases_in_repeats": int(inside.sum()),
        "mean_bits": _mean(bits[known]),
        "mean_bits_inside_repeats": _mean(bits[known & inside]),
        "mean_bits_outside_repeats": _mean(bits[known & ~inside]),
        "longest_repeats": [_row(rows[i], record.offset) for i in longest.tolist()],
        "seconds_attention": round(analysis.attention_seconds, 3),
        "seconds_repeats": round(analysis.repeats_seconds, 3),
    }


def _mean(bits: NDArray[np.float32]) -> float | None:
    return round(float(bits.mean(dtype=np.float64)), 4) if bits.size else None


def _row(row: tuple[int, int, int, int, str], offset: int) -> dict[str, Any]:
    start, end, partner_start, partner_end, strand = row
    return {
        "start": start + offset,
        "end": end + offset,
        "partner_start": partner_start + offset,
        "partner_end": partner_end + offset,
        "strand": strand,
        "bases": end - start,
    }
