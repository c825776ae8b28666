"""What the user reads: before, what will be done; after, what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ringcore.cli.genome import memory
from ringcore.cli.genome.estimate import spoken
from ringcore.cli.genome.fasta import Record
from ringcore.cli.genome.ranks import Ranks
from ringcore.cli.genome.settings import BACKGROUND_LIMIT, Settings, background, same_base
from ringcore.cli.printable import printable

_LISTED = 10


def announce(console: Console, records: Sequence[Record], settings: Sequence[Settings]) -> None:
    """Context, sharpness and background of each record; of the first few if there are many."""
    for record, asked in list(zip(records, settings, strict=True))[:_LISTED]:
        bases = record.codes.size
        weight = background(bases, asked.context, asked.sharpness)
        verdict = f"under {BACKGROUND_LIMIT:g}" if weight < BACKGROUND_LIMIT else "[bold]too much[/]"
        console.print(
            f"[bold]{escape(record.name)}[/]: {bases:,} bases; context w = {asked.context}, sharpness b = "
            f"{asked.sharpness:g}: background 2N(1/4 + 3/4 e^-b)^w = {weight:.1g} copies, {verdict}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
        own = background(bases, asked.context, asked.sharpness, same_base(record.codes))
        if own >= BACKGROUND_LIMIT:
            console.print(
                f"  at its own base composition it is {own:.1g} copies: unlike bases are scarce; a larger "
                "--context gives sharper bits",
                highlight=False,
                soft_wrap=True,
            )
    if len(records) > _LISTED:
        console.print(f"... and {len(records) - _LISTED:,} more records", highlight=False, soft_wrap=True)


def expect(console: Console, pairs: int, seconds: float, ranks: Ranks, room: int) -> None:
    """How much work there is, how long it should take, and how much memory all ranks together need."""
    on = "one rank" if ranks.size == 1 else f"{ranks.size} ranks ({ranks.transport})"
    about = "" if seconds < 1 else "about "
    console.print(
        f"attention over {pairs:.2g} query-key pairs on {on}: {about}{spoken(seconds)}, "
        f"about {memory.spoken(room)} of memory",
        highlight=False,
        soft_wrap=True,
    )


def report(console: Console, summary: dict[str, Any], folder: Path, names: Sequence[str]) -> None:
    """Tables of the figures and of the longest repeats of each record, and where the files are."""
    for record in summary["records"][:_LISTED]:
        console.print()
        if record["longest_repeats"]:
            console.print(_longest(record))
        else:
            console.print(
                f"[bold]{escape(record['name'])}[/]: no exact repeat of {record['context']} bases or more",
                soft_wrap=True,
            )
        console.print(_figures(record))
    if len(summary["records"]) > _LISTED:
        console.print(
            f"... and {len(summary['records']) - _LISTED:,} more records in the files",
            highlight=False,
            soft_wrap=True,
        )
    console.print()
    for name in names:
        console.print("  " + printable(str(folder / name)), highlight=False, markup=False, soft_wrap=True)


def _longest(record: dict[str, Any]) -> Table:
    rows = record["longest_repeats"]
    table = Table(
        title=f"{escape(record['name'])}: the {len(rows)} longest of {record['repeats']:,} repeats",
        caption="positions from 0, end not included",
        caption_justify="left",
        title_justify="left",
        title_style="bold",
    )
    for heading in ("start", "end", "copy start", "copy end", "strand", "bases"):
        table.add_column(heading, justify="center" if heading == "strand" else "right")
    for row in rows:
        table.add_row(
            *(f"{row[key]:,}" for key in ("start", "end", "partner_start", "partner_end")),
            row["strand"],
            f"{row['bases']:,}",
        )
    return table


def _figures(record: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    share = record["bases_in_repeats"] / record["bases"]
    for label, value in (
        ("repeats, same strand", f"{record['repeats_same_strand']:,}"),
        ("repeats, reverse complement", f"{record['repeats_reverse_complement']:,}"),
        ("  of these palindromes", f"{record['palindromes']:,}"),
        ("bases in repeats", f"{record['bases_in_repeats']:,} ({share:.1%})"),
        ("mean bits per base inside repeats", _number(record["mean_bits_inside_repeats"])),
        ("mean bits per base outside", _number(record["mean_bits_outside_repeats"])),
        ("attention", spoken(record["seconds_attention"])),
    ):
        table.add_row(label, value)
    return table


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
