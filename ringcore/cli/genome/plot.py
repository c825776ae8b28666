"""map.png: bits along the genome above a dot plot of repeats against their partners."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ringcore.cli.genome.analysis import Analysis

MOST_RECORDS = 9
"""A picture shows at most so many records, the longest ones."""

# Inches. The two axes of a panel stand exactly above each other, and the dot plot is a square.
_LEFT, _SIDE, _RIGHT = 1.0, 7.7, 0.3
_BOTTOM, _GAP, _BITS, _TOP = 1.1, 0.25, 1.5, 0.9
_WIDTH, _HEIGHT = _LEFT + _SIDE + _RIGHT, _BOTTOM + _SIDE + _GAP + _BITS + _TOP

# Okabe and Ito's colours, told apart by colour-blind readers as well.
SAME, REVERSE, PALINDROME, INK, FAINT = "#0072B2", "#D55E00", "#009E73", "#333333", "#C8C8C8"


def picture(analyses: Sequence[Analysis]) -> bytes:
    """The picture as PNG, one panel a record."""
    shown = sorted(analyses, key=lambda analysis: -analysis.record.codes.size)[:MOST_RECORDS]
    columns = math.ceil(math.sqrt(len(shown)))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(columns * _WIDTH, rows * _HEIGHT), dpi=150 if len(shown) == 1 else 100)
    FigureCanvasAgg(figure)
    panels = figure.subfigures(rows, columns, squeeze=False).ravel()
    for panel, analysis in zip(panels, shown, strict=False):
        _panel(panel, analysis)
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A name in letters that the font lacks is drawn as boxes; the other files have it.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(file, format="png", facecolor="white")
    return file.getvalue()


def smoothed(
    bits: NDArray[np.float32], windows: int = 400
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean bits in at most ``windows`` equal stretches: (middles, means), NaN where no base is known."""
    width = max(1, math.ceil(bits.size / windows))
    edges = np.arange(0, bits.size, width)
    known = ~np.isnan(bits)
    count = np.add.reduceat(known.astype(np.float64), edges)
    total = np.add.reduceat(np.where(known, bits, 0).astype(np.float64), edges)
    with np.errstate(invalid="ignore"):
        means = total / count
    return (edges + np.minimum(edges + width, bits.size)) / 2, means


def _panel(panel: SubFigure, analysis: Analysis) -> None:
    record, asked = analysis.record, analysis.settings
    left, side = _LEFT / _WIDTH, _SIDE / _WIDTH
    dots = panel.add_axes((left, _BOTTOM / _HEIGHT, side, _SIDE / _HEIGHT))
    above = (_BOTTOM + _SIDE + _GAP) / _HEIGHT
    bits_axes = panel.add_axes((left, above, side, _BITS / _HEIGHT), sharex=dots)
    _dots(dots, analysis)
    _bits(bits_axes, analysis)
    panel.text(left, 1 - 0.42 / _HEIGHT, f"{_short(record.name)}: where it repeats itself", fontsize=15,
               fontweight="bold", color=INK, va="baseline", parse_math=False)  # fmt: skip
    panel.text(
        left, 1 - 0.7 / _HEIGHT,
        f"{record.codes.size:,} bases, {len(analysis.repeats):,} exact repeats, by attention with "
        f"{asked.context} bases of context",
        fontsize=10.5, color=INK, va="baseline",
    )  # fmt: skip


def _short(name: str, most: int = 36) -> str:
    """A name that leaves room beside it for the rest of the title."""
    return name if len(name) <= most else name[: most - 3] + "..."


def _bits(axes: Axes, analysis: Analysis) -> None:
    middles, means = smoothed(analysis.echo.bits)
    x = middles + analysis.record.offset
    axes.fill_between(x, means, color=INK, alpha=0.12, linewidth=0, step="mid")
    axes.step(x, means, where="mid", color=INK, linewidth=0.9)
    axes.axhline(2, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    axes.set_ylim(0, max(2.3, 1.08 * float(np.nanmax(means, initial=0))))
    axes.set_yticks([0, 1, 2])
    axes.set_ylabel("bits per base", color=INK)
    axes.tick_params(labelbottom=False)
    _bare(axes)


def _dots(axes: Axes, analysis: Analysis) -> None:
    found, offset = analysis.repeats, analysis.record.offset
    low, high = offset, offset + analysis.record.codes.size
    axes.plot([low, high], [low, high], color=FAINT, linewidth=0.8, zorder=0)
    handles = []
    for label, colour, chosen in (
        ("same strand", SAME, ~found.reverse),
        ("reverse complement", REVERSE, found.reverse & ~found.palindrome),
        ("palindrome", PALINDROME, found.palindrome),
    ):
        segments = list(_segments(analysis, np.flatnonzero(chosen)))
        axes.add_collection(
            LineCollection(segments, colors=colour, linewidths=2.4, capstyle="round"), autolim=False
        )
        handles.append(Line2D([], [], color=colour, linewidth=2.4, label=f"{label} ({chosen.sum():,})"))
    margin = 0.01 * (high - low)
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(low - margin, high + margin)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True))
        axis.set_major_formatter(FuncFormatter(_place))
    axes.set_xlabel("position", color=INK)
    axes.set_ylabel("position of the copy", color=INK)
    axes.grid(color=FAINT, linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.075), ncols=3, frameon=False)
    _name_longest(axes, analysis)
    _bare(axes)


def _segments(analysis: Analysis, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """Line segments ((x0, y0), (x1, y1)) of repeats, and their mirror images across the diagonal."""
    found, offset = analysis.repeats, analysis.record.offset
    x0, x1 = found.start[chosen], found.end[chosen]
    reverse = found.reverse[chosen]
    y0 = np.where(reverse, found.partner_end[chosen], found.partner_start[chosen])
    y1 = np.where(reverse, found.partner_start[chosen], found.partner_end[chosen])
    lines = np.stack([np.stack([x0, y0], axis=1), np.stack([x1, y1], axis=1)], axis=1)
    return np.concatenate([lines, lines[:, :, ::-1]]).astype(np.float64) + offset


def _name_longest(axes: Axes, analysis: Analysis) -> None:
    """Write its length beside the longest repeat, if it is long enough to be seen as a line."""
    found, bases = analysis.repeats, analysis.record.codes.size
    if not len(found) or found.length.max() < bases / 50:
        return
    i = int(analysis.longest_first[0])
    x = (found.start[i] + found.end[i]) / 2 + analysis.record.offset
    y = (found.partner_start[i] + found.partner_end[i]) / 2 + analysis.record.offset
    slope = -1 if found.reverse[i] else 1
    axes.annotate(
        f"{found.length[i]:,} bases", (x, y), xytext=(7 * slope, -7), textcoords="offset points",
        rotation=45 * slope, rotation_mode="anchor", ha="center", va="top", fontsize=10.5, color=INK,
    )  # fmt: skip


def _place(position: float, _tick: int) -> str:
    for size, unit in ((1e6, "Mb"), (1e3, "kb")):
        if abs(position) >= size:
            return f"{position / size:g} {unit}"
    return f"{position:g}"


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(color=FAINT, labelcolor=INK)
