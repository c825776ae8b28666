"""What the only process, or rank 0, does: reads, estimates, has the ranks compute, writes."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

import ringcore as rc
from ringcore.cli.errors import InputError
from ringcore.cli.genome import attend, fasta, files, memory, region, report, screen, settings
from ringcore.cli.genome.analysis import Analysis, analyse
from ringcore.cli.genome.estimate import overhead, spoken
from ringcore.cli.genome.progress import watched
from ringcore.cli.genome.ranks import Ranks
from ringcore.cli.genome.settings import Settings
from ringcore.cli.printable import printable
from ringcore.cli.stop import Stopped

FILES = ("bits.bedgraph.gz", "repeats.bed", "summary.json", "map.png")
LONGEST_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Request:
    """What the user has asked for, as ``summary.json`` records it."""

    fasta: Path
    ranks: int | None
    out: Path
    record: list[str] | None
    region: str | None
    context: int | None
    sharpness: float | None
    force: bool


def lead(request: Request, ranks: Ranks) -> None:
    """What the only process, or rank 0, does."""
    begin = time.perf_counter()
    placed = threading.Event()
    # Open MPI gives its processes a terminal, wherever its own output goes.
    plain = False if ranks.transport == "MPI" else None
    console = Console(stderr=True, emoji=False, force_terminal=plain)
    try:
        records, asked = ranks.aside(lambda: _read(request))
        timings = {"reading": time.perf_counter() - begin}
        with files.claimed(request.out, FILES):
            analyses = _analysed(records, asked, ranks, request.force, timings, console)
            summary, contents = ranks.aside(lambda: _formatted(analyses, request, ranks, timings, begin))
            files.publish(request.out, contents, placed.set)
        screen.report(Console(emoji=False, force_terminal=plain), summary, request.out, FILES)
        ranks.dismiss()
    except MemoryError as error:
        raise InputError(f"not enough memory: {error}. Choose a --region, or a machine with more.") from error
    except Stopped as stopped:
        if placed.is_set():
            stopped.outcome = f"All four files are in {printable(str(request.out))}, complete."
        raise


def _read(request: Request) -> tuple[list[fasta.Record], list[Settings]]:
    records = region.select(fasta.read(request.fasta), request.record or [], request.region)
    return records, [settings.choose(each.codes.size, request.context, request.sharpness) for each in records]


def _analysed(
    records: list[fasta.Record],
    asked: list[Settings],
    ranks: Ranks,
    force: bool,
    timings: dict[str, float],
    console: Console,
) -> list[Analysis]:
    """Estimate memory and time, then have the ranks compute all records behind one progress bar."""
    screen.announce(console, records, asked)
    begin = time.perf_counter()
    total = sum(attend.scores(entry.codes.size) for entry in records)
    largest = max(range(len(records)), key=lambda i: records[i].codes.size)
    bases, chosen = records[largest].codes.size, asked[largest]
    survey = ranks.survey(bases, chosen)
    if not force:
        _check_room(survey.machines, bases, chosen, ranks.size)
    expected = total / survey.scores_per_second + len(records) * overhead(ranks, chosen)
    timings["estimating"] = time.perf_counter() - begin
    timings["attention_expected"] = expected
    if expected > LONGEST_SECONDS and not force:
        raise InputError(
            f"the attention would take about {spoken(expected)} on {_those(ranks)}, and more than 24 h needs "
            "--force. Add it, or choose a --region or a --record."
        )
    room = memory.needed(bases, chosen, range(ranks.size), ranks.size)
    screen.expect(console, total, expected, ranks, room)
    meter = rc.Meter()
    with watched(meter, total * ranks.metered // ranks.size, console):
        analyses = [analyse(*pair, ranks, meter) for pair in zip(records, asked, strict=True)]
    timings["attention"] = sum(analysis.attention_seconds for analysis in analyses)
    timings["repeats"] = sum(analysis.repeats_seconds for analysis in analyses)
    return analyses


def _check_room(machines: list[memory.Machine], bases: int, chosen: Settings, ranks: int) -> None:
    """Refuse what needs more memory than a machine can give its ranks."""
    for machine in machines:
        room = memory.needed(bases, chosen, machine.ranks, ranks)
        if machine.free is not None and room > machine.free:
            share = "" if len(machine.ranks) == ranks else f" for {len(machine.ranks)} of the {ranks} ranks"
            raise InputError(
                f"the attention would take about {memory.spoken(room)} of memory{share}, of which "
                f"{memory.spoken(machine.free)} are free on {machine.name}, and more needs --force. "
                "Choose a --region or a --record."
            )


def _those(ranks: Ranks) -> str:
    return f"these {ranks.size} ranks" if ranks.transport == "MPI" else "this machine"


def _formatted(
    analyses: list[Analysis], request: Request, ranks: Ranks, timings: dict[str, float], begin: float
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
    arguments = asdict(request) | {"fasta": str(request.fasta), "out": str(request.out)}
    summary = report.summary(analyses, arguments, ranks, timings)
    return summary, contents | {"summary.json": report.as_json(summary)}
