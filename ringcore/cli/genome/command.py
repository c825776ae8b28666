"""The command itself: reads, estimates, runs, writes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import ringcore as rc
from ringcore.cli.errors import InputError
from ringcore.cli.genome import attend, fasta, files, memory, region, report, screen, settings
from ringcore.cli.genome.analysis import Analysis, analyse
from ringcore.cli.genome.estimate import overhead, scores_per_second, spoken
from ringcore.cli.genome.progress import watched
from ringcore.cli.genome.settings import Settings
from ringcore.cli.printable import printable
from ringcore.cli.stop import Stopped

FILES = ("bits.bedgraph.gz", "repeats.bed", "summary.json", "map.png")
LONGEST_SECONDS = 24 * 3600
MOST_RANKS = max(16, 4 * (os.cpu_count() or 1))
"""Ranks are threads here: more than a few a core only wait for each other, and P of them meet P^2 times."""


def genome(
    path: Annotated[Path, typer.Argument(metavar="FASTA", help="DNA or RNA, plain or gzip.")],
    ranks: Annotated[
        int, typer.Option(metavar="N", help="Ranks: threads of this process that share the work.")
    ] = 1,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results; may exist.")] = Path(
        "ringcore-genome"
    ),
    record: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this record; may be given several times.")
    ] = None,
    region_: Annotated[
        str | None,
        typer.Option("--region", metavar="NAME:START-END", help="Only these bases, from 1, both included."),
    ] = None,
    context: Annotated[
        int | None, typer.Option(metavar="W", help="Bases that are compared; chosen for the genome's size.")
    ] = None,
    sharpness: Annotated[
        float | None, typer.Option(metavar="B", help="Score of one equal base; 3 by default.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Start even if it takes over 24 hours or more memory than is free."),
    ] = False,
) -> None:
    """Find where a genome repeats itself, on either strand, however far apart.

    Exact attention of every position over all positions of both strands,
    with no trained weights, finds exact repeats and the bits per base that
    they leave. Each record is a genome of its own.
    """
    begin = time.perf_counter()
    if not 1 <= ranks <= MOST_RANKS:
        raise InputError(
            f"--ranks must be from 1 to {MOST_RANKS} on this machine. Got {ranks}. "
            "Leave it out: one rank uses all cores already."
        )
    records = region.select(fasta.read(path), record or [], region_)
    asked = [settings.choose(entry.codes.size, context, sharpness) for entry in records]
    arguments = {
        "fasta": str(path), "ranks": ranks, "out": str(out), "record": record, "region": region_,
        "context": context, "sharpness": sharpness, "force": force,
    }  # fmt: skip
    timings = {"reading": time.perf_counter() - begin}
    placed = threading.Event()
    try:
        with files.claimed(out, FILES):
            analyses = _analysed(records, asked, ranks, force, timings)
            summary, contents = _formatted(analyses, arguments, timings, begin)
            files.publish(out, contents, placed.set)
        screen.report(Console(emoji=False), summary, out, FILES)
    except Stopped as stopped:
        if placed.is_set():
            stopped.outcome = f"All four files are in {printable(str(out))}, complete."
        raise


def _analysed(
    records: list[fasta.Record], asked: list[Settings], ranks: int, force: bool, timings: dict[str, float]
) -> list[Analysis]:
    """Estimate memory and time, then run the attention of all records behind one progress bar."""
    console = Console(stderr=True, emoji=False)
    screen.announce(console, records, asked)
    begin = time.perf_counter()
    total = sum(attend.scores(entry.codes.size) for entry in records)
    largest = max(range(len(records)), key=lambda i: records[i].codes.size)
    codes, chosen = records[largest].codes, asked[largest]
    room, free = memory.needed(codes.size, chosen, ranks), memory.free()
    if free is not None and room > free and not force:
        raise InputError(
            f"the attention would take about {memory.spoken(room)} of memory, of which {memory.spoken(free)} "
            "are free on this machine, and more needs --force. Choose a --region or a --record."
        )
    expected = total / scores_per_second(codes, chosen) + len(records) * overhead(ranks, chosen)
    middle = time.perf_counter()
    if expected > LONGEST_SECONDS and not force:
        raise InputError(
            f"the attention would take about {spoken(expected)} on this machine, and more than 24 h needs "
            "--force. Add it, or choose a --region or a --record."
        )
    screen.expect(console, records, expected, ranks, room)
    meter = rc.Meter()
    pairs = list(zip(records, asked, strict=True))
    try:
        analyses = watched(lambda: [analyse(*pair, ranks, meter) for pair in pairs], meter, total, console)
    except MemoryError as error:
        raise InputError(f"not enough memory: {error}. Choose a --region, or a machine with more.") from error
    timings["estimating"] = middle - begin
    timings["attention_expected"] = expected
    timings["attention"] = sum(analysis.attention_seconds for analysis in analyses)
    timings["repeats"] = sum(analysis.repeats_seconds for analysis in analyses)
    return analyses


def _formatted(
    analyses: list[Analysis], arguments: dict[str, Any], timings: dict[str, float], begin: float
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What summary.json holds, and all files as bytes."""
    from ringcore.cli.genome.plot import picture  # slow to import: not before anybody can see an error

    drawing = time.perf_counter()
    contents = {
        "bits.bedgraph.gz": report.bedgraph_gz(analyses),
        "repeats.bed": report.repeats_bed(analyses),
        "map.png": picture(analyses),
    }
    now = time.perf_counter()
    timings |= {"drawing_and_formatting": now - drawing, "all_before_writing": now - begin}
    summary = report.summary(analyses, arguments, timings)
    return summary, contents | {"summary.json": report.as_json(summary)}
