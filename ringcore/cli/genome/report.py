"""The text files: bits.bedgraph.gz, repeats.bed, summary.json, as bytes.

Positions are those of the record, counted from 0, half-open, as both formats want.
"""

from __future__ import annotations

import gzip
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ringcore.cli.genome.analysis import Analysis, figures
from ringcore.cli.genome.ranks import Ranks
from ringcore.cli.version import installed_version

BED_HEADER = "#chrom start end partner_start partner_end strand identity length kind".replace(" ", "\t")


def bedgraph_gz(analyses: Sequence[Analysis]) -> bytes:
    """Bits per base, three decimals; neighbours that agree share a line, ambiguous bases have none.

    Reference: https://genome.ucsc.edu/goldenPath/help/bedgraph.html
    """
    lines = ['track type=bedGraph name="bits per base" description="ringcore genome"']
    for analysis in analyses:
        lines += _bedgraph_lines(analysis)
    return gzip.compress(("\n".join(lines) + "\n").encode(), compresslevel=6, mtime=0)


def _bedgraph_lines(analysis: Analysis) -> list[str]:
    name, offset = analysis.record.name, analysis.record.offset
    bits = analysis.echo.bits
    thousandths = np.where(np.isnan(bits), -1, np.rint(1000 * bits)).astype(np.int64)
    starts = np.flatnonzero(np.diff(thousandths, prepend=-2))
    ends = np.append(starts[1:], bits.size)
    return [
        f"{name}\t{start + offset}\t{end + offset}\t{value / 1000:.3f}"
        for start, end, value in zip(
            starts.tolist(), ends.tolist(), thousandths[starts].tolist(), strict=True
        )
        if value >= 0
    ]


def repeats_bed(analyses: Sequence[Analysis]) -> bytes:
    """One line a repeat, in order of its left copy; ``kind`` is repeat, inverted or palindrome.

    Reference: https://genome.ucsc.edu/FAQ/FAQformat.html#format1 (this is BED3 with further columns)
    """
    lines = [BED_HEADER]
    for analysis in analyses:
        name, offset, found = analysis.record.name, analysis.record.offset, analysis.repeats
        kinds = np.where(found.palindrome, "palindrome", np.where(found.reverse, "inverted", "repeat"))
        for row, identity, kind in zip(found.rows(), found.identity.tolist(), kinds.tolist(), strict=True):
            start, end, partner_start, partner_end, strand = row
            places = (x + offset for x in (start, end, partner_start, partner_end))
            lines.append(
                "\t".join([name, *map(str, places), strand, f"{identity:.3f}", str(end - start), kind])
            )
    return ("\n".join(lines) + "\n").encode()


def summary(
    analyses: Sequence[Analysis], arguments: Mapping[str, Any], ranks: Ranks, timings: Mapping[str, float]
) -> dict[str, Any]:
    """What ``summary.json`` holds: arguments, ranks, versions, timings in seconds, figures of each record."""
    return {
        "ringcore": installed_version(),
        "arguments": dict(arguments),
        "ranks": {"number": ranks.size, "transport": ranks.transport},
        "versions": {"python": platform.python_version(), "platform": platform.platform()}
        | {
            name: _version(name)
            for name in ("numpy", "array-api-compat", "dnaio", "matplotlib", "mpi4py", "rich", "typer")
        },
        "seconds": {name: round(seconds, 3) for name, seconds in timings.items()},
        "records": [figures(analysis) for analysis in analyses],
    }


def as_json(content: Mapping[str, Any]) -> bytes:
    """Indented, strict JSON (no NaN)."""
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
