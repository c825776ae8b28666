"""Each contender's settings tried in turn; writes the best of each kind of case for `compare.py`.

    .venv-bench/bin/python benchmarks/sweep.py

Which setting is best hangs on the machine: run it anew on another one (some minutes). A setting's figure is
the median of its time over that of the documented default, measured around it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import environment
import machine
from cases import Case, cases, inputs
from harness import measured
from oracle import oracle
from rich.console import Console
from rich.progress import track
from rivals import all_rivals
from rivals.first_call import first_call
from rivals.rival import Rival, Unavailable
from settings import SWEEP


def swept(rival: Rival, case: Case, rounds: int) -> dict[str, Any]:
    """All settings of one contender in one case: time over that of the first, and the best."""
    arrays = inputs(case)
    truth = oracle(case, arrays)
    works, left_out = {}, {}
    for setting in rival.settings:
        try:
            works[str(setting)] = first_call(rival, case, arrays, truth, setting)[0].run
        except Unavailable as why:
            left_out[str(setting)] = str(why)
    default, *others = works
    samples = measured(works, None, rounds, 0.0, dict.fromkeys(works, rounds))
    ratios = {default: 1.0} | {name: round(samples.ratio(name, default), 3) for name in others}
    best = min(ratios, key=lambda name: ratios[name])
    return {
        "contender": rival.name,
        "dim": case.dim,
        "mask": case.mask,
        "direction": case.direction,
        "best": next(setting for setting in rival.settings if str(setting) == best),
        "time_over_default": ratios,
        "left_out": left_out,
    }


def main() -> None:
    """Write `results/sweep.json`."""
    environment.settle()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=4096, metavar="S")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=SWEEP)
    options = parser.parse_args()
    console, cores = Console(), environment.cores()
    rivals = [rival for rival in all_rivals(cores)[0] if len(rival.settings) > 1]
    todo = [(rival, case) for rival in rivals for case in cases([options.length])]
    rows = []
    for rival, case in track(todo, "trying settings", console=console):
        rows.append(swept(rival, case, options.rounds))
        console.print(f"{rival.name}, {case}: {rows[-1]['time_over_default']}", highlight=False)
    for rival in rivals:
        rival.close()
    found = {"machine": machine.facts(cores), "length": options.length, "heads": 4, "rows": rows}
    options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
