"""A table and a figure for the README, from the committed results of `make bench`.

make bench
python benchmarks/tables.py     # writes benchmarks/results/rivals.md and rivals.png
python docs/render_readme.py    # puts them into the README
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path("benchmarks/results")
MINE = "ringcore"
KINDS = [(direction, mask) for direction in ("forward", "forward+backward") for mask in ("full", "causal")]
CASES = [(*kind, dim) for kind in KINDS for dim in (64, 128)]

Row = dict[str, Any]
Key = tuple[str, int, str, str, int]


def by_case(results: Row) -> dict[Key, Row]:
    """Rows by contender, length, direction, mask, dim."""
    names = ("contender", "length", "direction", "mask", "dim")
    return {tuple(row[name] for name in names): row for row in results["rows"]}


def lengths(results: Row) -> list[int]:
    return sorted({row["length"] for row in results["rows"]})


def cell(rows: list[Row | None], field: str, form: str) -> str:
    """One figure for each length, '-' where there is none."""
    found = [form.format(row[field]) if row and field in row else "-" for row in rows]
    return " / ".join(found) if set(found) != {"-"} else "-"


def table(results: Row) -> str:
    """Kinds of case down, contenders across; in a cell the figures of all lengths."""
    rows, sizes = by_case(results), lengths(results)
    others = [name for name in results["contenders"] if name != MINE]
    heads = ["", "ringcore, share of GEMM", *(f"time of {name}" for name in others)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for direction, mask, dim in CASES:

        def figures(name: str, field: str, form: str, kind: Any = (direction, mask, dim)) -> str:
            return cell([rows.get((name, size, *kind)) for size in sizes], field, form)

        share = figures(MINE, "share_of_gemm", "{:.2f}")
        times = [figures(name, "ratio_to_ringcore", "{:.1f}") for name in others]
        lines.append("| " + " | ".join([f"{direction}, {mask}, D={dim}", share, *times]) + " |")
    return "\n".join(lines)


def worst_error(results: Row) -> float:
    return max(float(e) for row in results["rows"] for e in row.get("errors", {}).values())


def tried(about: Row) -> str:
    """Which settings there was a choice of."""
    choices = ", ".join(" x ".join(map(str, s)) if isinstance(s, list) else str(s) for s in about["settings"])
    if len(about["settings"]) == 1:
        return ""
    return f"; {choices}: the fastest in each kind of case" if about["swept"] else f"; the first of {choices}"


def rendered(results: Row) -> str:
    """The block of the README."""
    machine, sizes = results["machine"], " / ".join(f"{s:,}" for s in lengths(results))
    heads = results["rows"][0]["heads"]
    vectors = "AVX-512" if "avx512f" in machine["instructions"] else ", ".join(machine["instructions"])
    packages = ", ".join(f"{name} {machine['packages'][name]}" for name in ("numpy", "numba", "jaxlib"))
    notes = "\n".join(
        f"- {name} {about['version']}: {about['how']}{tried(about)}."
        for name, about in results["contenders"].items()
    )
    where = f"{machine['cores']} cores ({machine['cpu']}, {vectors}), {machine['date'][:10]}"
    return f"""
![Share of the machine's matrix-product rate that each library reaches]({RESULTS}/rivals.png)

{heads} heads, {sizes} tokens, float32, on {where}. Times are over ringcore's:
medians of ratios of neighbouring measurements in one run. GEMM: {machine["cores"]} products of 2048 x 2048
matrices at a time, a thread each. Everybody's answers were checked against float64 in that run; the largest
error was {worst_error(results):.0e} of the sum of the absolute values of what was added up. '-': takes too
long.

{table(results)}

<details><summary>How each was called ({packages})</summary>

{notes}

</details>

"""


def figure(results: Row, path: Path) -> None:
    """Share of the GEMM rate, a panel for each kind, at the shortest length: all take part there."""
    rows, length = by_case(results), lengths(results)[0]
    names = list(results["contenders"])
    fig, axes = plt.subplots(1, len(KINDS), figsize=(12, 3.2), sharey=True, layout="constrained")
    for ax, (direction, mask) in zip(axes, KINDS, strict=True):
        for shift, dim, colour in ((-0.2, 128, "#1b6ca8"), (0.2, 64, "#9cc5e3")):
            shares = [
                rows.get((name, length, direction, mask, dim), {}).get("share_of_gemm", 0) for name in names
            ]
            places = [i + shift for i in range(len(names))]
            bars = ax.barh(places, shares, height=0.38, color=colour, label=f"D = {dim}")
            ax.bar_label(bars, [f"{share:.2f}" if share else "-" for share in shares], padding=2, fontsize=7)
        ax.set(title=f"{direction}, {mask}", xlim=(0, 1.15), yticks=range(len(names)), yticklabels=names)
        ax.axvline(1, color="0.6", linewidth=0.8, linestyle=":")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].invert_yaxis()
    axes[-1].legend(loc="lower right", frameon=False)
    fig.supxlabel(f"useful FLOP rate over the rate of matrix products, S = {length:,}", fontsize=9)
    fig.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    """Write both beside the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="?", default=ROOT / RESULTS / "rivals.json")
    source = parser.parse_args().results
    results = json.loads(source.read_text())
    source.with_suffix(".md").write_text(rendered(results).strip() + "\n")
    figure(results, source.with_suffix(".png"))


if __name__ == "__main__":
    main()
