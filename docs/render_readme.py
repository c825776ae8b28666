"""Fill the README's blocks of results from the committed results of `make demo` and `make bench`.

Run `make demo`, copy what is worth keeping, render:

    cp demo-output/{summary.json,repeats.bed,map.png} docs/results/NC_000932/
    python docs/render_readme.py

The same for `make bench`, whose table and figure `benchmarks/tables.py` makes:

    .venv-bench/bin/python benchmarks/tables.py
    python docs/render_readme.py
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path("docs/results/NC_000932")
RIVALS = Path("benchmarks/results/rivals.md")


def rendered(summary: dict) -> str:
    """The block of the README, from what the demo wrote."""
    (record,) = summary["records"]
    longest = record["longest_repeats"]
    seconds, billions = summary["seconds"]["attention"], record["scores"] / 1e9
    copies = [("start", "end"), ("partner_start", "partner_end")]
    rows = "\n".join(
        "| " + " | ".join(f"{r[a]:,}-{r[b]:,}" for a, b in copies) + f" | {r['strand']} | {r['bases']:,} |"
        for r in longest[:5]
    )
    return f"""
![Bits per base along the chloroplast genome, and a dot plot of its repeats]({RESULTS}/map.png)

*Arabidopsis thaliana* chloroplast, {record["bases"]:,} bases: {billions:.1f} billion scores in
{seconds:.0f} s on 2 cores, and {record["repeats"]:,} exact repeats. The longest ones (0-based, half-open):

| copy | other copy | strand | bases |
|---|---|---|---|
{rows}

Bits needed per base, given what follows elsewhere: {record["mean_bits_inside_repeats"]:.2f} inside repeats, \
{record["mean_bits_outside_repeats"]:.2f} outside.

"""


def filled(text: str, name: str, content: str) -> str:
    """``text`` with ``content`` between the marks of the block ``name``."""
    block = re.compile(rf"(<!-- {name}: begin[^>]*-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
    text, count = block.subn(lambda m: m[1] + content + m[2], text)
    if count != 1:
        raise SystemExit(
            f"README.md must hold one block between <!-- {name}: begin --> and end. Got {count or 'none'}."
        )
    return text


def main() -> None:
    """Rewrite README.md in place."""
    readme = ROOT / "README.md"
    text = filled(
        readme.read_text(), "results", rendered(json.loads((ROOT / RESULTS / "summary.json").read_text()))
    )
    if (ROOT / RIVALS).exists():
        text = filled(text, "rivals", f"\n{(ROOT / RIVALS).read_text()}\n")
    readme.write_text(text)


if __name__ == "__main__":
    main()
