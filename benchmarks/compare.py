"""ringcore's NumPy backend beside what one would pick instead: same arrays, same cores, in turn, in one run.

    make bench                                       # makes the environment, too; under 15 minutes on 2 cores
    make bench BENCH_ARGS=--quick                    # short, to see that everything runs

A contender's first call in each case is not timed; its results are held against float64 (`oracle.py`). Then
all take turns, matrix products between them (`harness.py`, `gemm.py`). The results file has every sample.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import environment
import machine
from cases import Case, cases, inputs
from gemm import Gemm
from harness import GEMM, Samples, measured
from oracle import oracle
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rivals import all_rivals
from rivals.first_call import first_call
from rivals.rival import Rival, Unavailable
from settings import Settings

SHORT = 8192
"""Tokens up to which all take part; beyond, those that are marked as `long`: the others take too long."""

RESULTS = Path(__file__).resolve().parent / "results" / "rivals.json"


def dear(case: Case) -> bool:
    """Left out unless --all is given: of the long cases with gradients those with the larger D will do."""
    return case.length > SHORT and case.backward and case.dim < 128


def figures(case: Case, samples: Samples, name: str, first: str, gemm_flops: int) -> dict[str, Any]:
    """Of one contender in one case; medians."""
    taken = samples.of(name)
    rate = 1 / samples.ratio(name, GEMM)  # matrix products' time over its own
    ratios = samples.beside(name, first) if name != first else [1.0]
    return {
        "seconds": [round(s, 5) for s in taken],
        "gflops": round(case.flops / median(taken) / 1e9, 1),
        "share_of_gemm": round(case.flops / gemm_flops * rate, 3),
        "ratio_to_ringcore": round(median(ratios), 3),
        "ratios": [round(r, 3) for r in ratios],
    }


def compared(case: Case, rivals: list[Rival], settings: Settings, gemm: Gemm, options: Any, tell: Any) -> Any:
    """One case: a row for each contender, and the samples of the matrix products."""
    arrays = inputs(case)
    tell("float64")
    truth = oracle(case, arrays)
    about = {
        "length": case.length,
        "heads": case.heads,
        "dim": case.dim,
        "dtype": "float32",
        "mask": case.mask,
        "direction": case.direction,
    }
    rows, calls = {}, {}
    for rival in rivals:
        tell(f"{rival.name}, first call")
        setting = settings.best(rival, case)
        rows[rival.name] = {"contender": rival.name, **about, "setting": setting}
        if case.length > SHORT and not (rival.long or options.all):
            rows[rival.name]["left_out"] = f"measured up to {SHORT:,} tokens"
            continue
        try:
            calls[rival.name], errors = first_call(rival, case, arrays, truth, setting)
            rows[rival.name] |= {"errors": errors, "checked": truth.what}
        except Unavailable as why:
            rows[rival.name]["left_out"] = str(why)
    first = rivals[0].name
    if first not in calls:
        raise SystemExit(f"{first} must be right before it is compared. Got: {rows[first]['left_out']}")
    works = {name: call.run for name, call in calls.items()}
    fewest = {rival.name: 2 if rival.long else 1 for rival in rivals}
    samples = measured(works, gemm.seconds, options.rounds, options.allowance, fewest, tell)
    for name in calls:
        lost = samples.lost.get(name)
        rows[name] |= {"left_out": lost} if lost else figures(case, samples, name, first, gemm.flops)
    return list(rows.values()), {**about, "seconds": [round(s, 5) for s in samples.of(GEMM)]}


def line(case: Case, rows: list[dict[str, Any]]) -> str:
    """A case in one line."""
    mine, *others = rows
    found = [f"{row['contender']} x{row['ratio_to_ringcore']:.2f}" for row in others if "seconds" in row]
    share = f"{mine['gflops']:.0f} GFLOP/s, {mine['share_of_gemm']:.2f} of GEMM"
    return f"{case}: {share}; time of {', '.join(found)}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[8192, 16384], metavar="S")
    parser.add_argument("--all", action="store_true", help="what would take it beyond 15 minutes, too")
    parser.add_argument("--quick", action="store_true", help="S = 2,048, two rounds, no results file")
    parser.add_argument("--rounds", type=int, default=3, help="at most, in each case (3)")
    parser.add_argument(
        "--allowance",
        type=float,
        default=6.0,
        metavar="SECONDS",
        help="of a contender in a case (6); one sample of the slow, two of the others",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders whose names begin so")
    parser.add_argument("--json", type=Path, help=f"results file ({RESULTS.name}, next to this program)")
    options = parser.parse_args()
    if options.quick:
        options.lengths, options.rounds = [2048], 2
    elif options.json is None:
        options.json = RESULTS
    return options


def main() -> None:
    """Measure, print a line for each case, write the results file after each."""
    environment.settle()
    options, console, begin = arguments(), Console(), time.monotonic()
    cores = environment.cores()
    rivals, missing = all_rivals(cores)
    if options.only:
        rivals = [r for r in rivals if r is rivals[0] or r.name.startswith(tuple(options.only))]
    for name, why in missing.items():
        console.print(f"[yellow]without {name}: {why}[/]")
    todo = [case for case in cases(options.lengths) if options.all or not dear(case)]
    settings, gemm = Settings(), Gemm(cores)
    results: dict[str, Any] = {
        "machine": {},
        "contenders": {
            r.name: {
                "version": r.version,
                "how": r.how,
                "settings": r.settings,
                "swept": r.name in settings.swept,
            }
            for r in rivals
        },
        "missing": missing,
        "gemm": [],
        "rows": [],
    }
    bars = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*bars, console=console) as progress:
        task = progress.add_task("", total=sum(case.flops for case in todo))
        for case in todo:
            rows, products = compared(
                case,
                rivals,
                settings,
                gemm,
                options,
                lambda what, case=case: progress.update(task, description=f"{case}: {what}"),
            )
            results["rows"] += rows
            results["gemm"].append(products)
            # By now everything has been loaded.
            results["machine"] = results["machine"] or machine.facts(cores)
            results["minutes"] = round((time.monotonic() - begin) / 60, 1)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n")
            progress.advance(task, case.flops)
            console.print(line(case, rows), highlight=False)
            gc.collect()
    for rival in rivals:
        rival.close()
    for row in results["rows"]:
        if "left_out" in row and row["length"] <= SHORT:
            what = f"{row['contender']}, D={row['dim']} {row['mask']} {row['direction']}"
            console.print(f"[yellow]without {what}: {row['left_out']}[/]")
    console.print(f"{results['minutes']} minutes" + (f"; {options.json}" if options.json else ""))


if __name__ == "__main__":
    main()
