"""What the user reads: tables of rows that differ in length, mask and direction; faults; what it ran on."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ringcore.cli.bench import about
from ringcore.cli.bench.figures import Figures
from ringcore.cli.bench.run import Outcome
from ringcore.cli.printable import printable

NONE = "n/a"
UNSTEADY = 1.5


def report(console: Console, outcomes: Sequence[Outcome], planned: int, closing: Sequence[str]) -> None:
    """Print everything.

    Parameters
    ----------
    console : Console
    outcomes : sequence of Outcome
    planned : int
        How many rows there should have been.
    closing : sequence of str
        Lines at the end.
    """
    found = {outcome.row: outcome for outcome in outcomes}
    for group in about.shared([outcome.row for outcome in outcomes]):
        table = _table(about.heading(group[0]), [found[row] for row in group])
        console.width = max(console.width, _width(console, table))
        console.print(table)
        console.print()
    unsteady = _unsteady([outcome.figures for outcome in outcomes if outcome.figures is not None])
    if unsteady:
        _say(console, unsteady)
    faulty = [outcome for outcome in outcomes if outcome.fault]
    for outcome in faulty:
        _say(console, f"FAILED {about.heading(outcome.row)}, {outcome.row}")
        _say(console, f"  {outcome.fault}")
    if faulty:
        _say(console, f"{len(faulty)} of {planned} {_rows(planned)} FAILED")
    if len(outcomes) < planned:
        _say(
            console,
            "stopped: after an error on some ranks only, the ring cannot be used; "
            f"{planned - len(outcomes)} {_rows(planned - len(outcomes))} not tried",
        )
    for line in closing:
        _say(console, line)


def _unsteady(found: Sequence[Figures]) -> str:
    """Whether the machine did not keep its speed, as equal products tell."""
    times = [f.samples["gemm_seconds"] for f in found]
    worst = max((max(row) / min(row) for row in times), default=1.0)
    if worst < UNSTEADY:
        return ""
    return (
        f"not steady: of equal matrix products in one row, some took {worst:.1f} times as long as others. "
        "Does somebody else use this machine?"
    )


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def _table(title: str, outcomes: Sequence[Outcome]) -> Table:
    found = [outcome.figures for outcome in outcomes if outcome.figures is not None]
    shares = any(f.shared_bytes for f in found)
    scaling = any(f.speedup is not None for f in found)
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    for name in ("S", "mask", "pass"):
        table.add_column(f"\n{name}", justify="right" if name == "S" else "left", no_wrap=True)
    heads = ["time", "GFLOP/s", "of\nGEMM", "use-\nful", "sent", *(["shown"] if shares else [])]
    heads += ["held\nup", "over-\nlap", "peak", *(["speed-\nup", "effi-\nciency"] if scaling else [])]
    for name in heads:
        table.add_column(name if "\n" in name else f"\n{name}", justify="right", no_wrap=True)
    for outcome in outcomes:
        row = outcome.row
        cells = ["FAILED"] if outcome.figures is None else _cells(outcome.figures, shares, scaling)
        table.add_row(f"{row.length:,}", row.mask.text, "both" if row.backward else "fwd", *cells)
    return table


def _cells(f: Figures, shares: bool, scaling: bool) -> list[str]:
    cells = [
        duration(f.seconds),
        f"{f.gflops:,.1f}" if f.gflops < 100 else f"{f.gflops:,.0f}",
        _percent(f.share),
        _percent(f.useful),
        size(f.bytes) if f.bytes else NONE,
        *([size(f.shared_bytes) if f.shared_bytes else NONE] if shares else []),
        _percent(f.held_up / f.seconds) if f.bytes or f.shared_bytes else NONE,
        NONE if f.overlap is None else "< 0" if f.overlap < 0 else f"{f.overlap:.2f}",
        size(f.peak_bytes),
    ]
    if scaling:
        cells += [NONE if f.speedup is None else f"{f.speedup:.2f}", _percent(f.efficiency)]
    return cells


def _percent(x: float | None) -> str:
    return NONE if x is None else f"{100 * x:.0f}%"


def duration(seconds: float) -> str:
    """Three digits and a unit.

    Examples
    --------
    >>> duration(0.000_123), duration(0.02), duration(3.14159), duration(99.99)
    ('123 us', '20.0 ms', '3.14 s', '100 s')
    """
    for unit, factor in (("us", 1e6), ("ms", 1e3), ("s", 1.0)):
        x = seconds * factor
        if x < 999.5 or unit == "s":
            break
    digits = 2 if x < 9.995 else 1 if x < 99.95 else 0
    return f"{x:,.{digits}f} {unit}"


def size(nbytes: int) -> str:
    """Bytes, at most four digits and a unit.

    Examples
    --------
    >>> size(0), size(1234), size(31_500_000), size(2_500_000_000)
    ('0 kB', '1 kB', '32 MB', '2.5 GB')
    """
    if nbytes < 999_500:
        return f"{nbytes / 1e3:.0f} kB"
    return f"{nbytes / 1e6:.0f} MB" if nbytes < 999_500_000 else f"{nbytes / 1e9:,.1f} GB"


def _width(console: Console, table: Table) -> int:
    """What the table needs: it is not cut, but its lines may be longer than the screen's."""
    wide = console.options.update(max_width=400, width=400)
    return table.__rich_measure__(console, wide).maximum


def _say(console: Console, text: str) -> None:
    """Lines as they are: to be copied, not to be wrapped."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
