"""The picture: how near to the matrix product's rate attention comes, over the length."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from ringcore.cli.bench import about
from ringcore.cli.bench.rows import Row
from ringcore.cli.bench.run import Outcome

# Okabe and Ito's colours, told apart by colour-blind readers as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
INK, FAINT = "#333333", "#C8C8C8"
MARKERS = "osD^vP"


def picture(outcomes: Sequence[Outcome], title: str) -> bytes:
    """As PNG."""
    file = io.BytesIO()
    figure(outcomes, title).savefig(file, format="png", facecolor="white")
    return file.getvalue()


def figure(outcomes: Sequence[Outcome], title: str) -> Figure:
    """One panel for each heading, in it one line for each mask and direction."""
    measured = [outcome for outcome in outcomes if outcome.figures is not None]
    groups = about.shared([outcome.row for outcome in measured])
    count = max(1, len(groups))
    whole = Figure(figsize=(8.0, 0.9 + 4.2 * count), dpi=130, layout="constrained")
    FigureCanvasAgg(whole)
    whole.suptitle(f"ringcore: useful share of the matrix product's rate\n{title}", fontsize=11, color=INK,
                    parse_math=False)  # fmt: skip
    shares = {o.row: o.figures.share for o in measured if o.figures is not None}
    top = 1.05 * max([1.0, *shares.values()])
    axes: list[Axes] = list(whole.subplots(count, 1, squeeze=False).ravel())
    for panel, rows in zip(axes, groups, strict=False):
        _panel(panel, rows, shares)
    for panel in axes:
        panel.set_ylim(0, top)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        panel.set_ylabel("of GEMM", color=INK)
    axes[-1].set_xlabel("tokens S", color=INK)
    return whole


def _panel(axes: Axes, rows: Sequence[Row], shares: dict[Row, float]) -> None:
    masks = list(dict.fromkeys(row.mask.text for row in rows))
    for number, mask in enumerate(masks):
        for backward in (False, True):
            points = sorted(
                (row.length, shares[row])
                for row in rows
                if row.mask.text == mask and row.backward == backward
            )
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    color=COLOURS[number % len(COLOURS)],
                    marker=MARKERS[number % len(MARKERS)],
                    markerfacecolor="white" if backward else None,
                    linestyle="--" if backward else "-",
                    label=f"{mask}, {'forward+backward' if backward else 'forward'}",
                )
    axes.set_title(about.heading(rows[0]), fontsize=9.5, color=INK, loc="left", parse_math=False)
    lengths = sorted({row.length for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(_apart(lengths))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    if len(lengths) == 1:
        axes.set_xlim(lengths[0] / 2, lengths[0] * 2)
    axes.grid(color=FAINT, linewidth=0.5, alpha=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8.5)


def _apart(lengths: Sequence[int], most: int = 9) -> list[int]:
    """Those that can be labelled without touching each other."""
    if not lengths:
        return []
    ratio = (lengths[-1] / lengths[0]) ** (1 / most)
    kept = [lengths[0]]
    for length in lengths[1:]:
        if length >= kept[-1] * ratio:
            kept.append(length)
    return kept
