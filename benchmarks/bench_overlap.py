"""How much of its messages' time an attention call hides behind its computing.

    python benchmarks/bench_overlap.py --json benchmarks/results/overlap.json

As root on Linux, with MPICH. Two ranks of one core each, on two hosts that are network namespaces joined by
a link of 1 and of 10 Gbit/s (`two_hosts.py`). MPI is told that they share no memory, and the interfaces'
counters say whether all bytes went over the link. float32, 4 heads of 128; ``--tokens 1024`` for a try.

    overlap = 1 - (time blocked in wait) / (time of the same exchanges alone)

Blocked is a rank once it has computed what it can and waits for messages. That may also be because the
other rank is late, which is shown apart; "bare" is the part of the time alone that belongs to exchanges with
nothing to compute beside them. Not hidden is the processor's time for the messages: one core does both. A
figure is that of the rank with less overlap; medians of rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from two_hosts import LINK, NoHosts, end_tidily, on, two_hosts

HERE = Path(__file__).resolve().parent
GOAL = 0.95
PASSES = ("forward", "forward+backward")
TIMES = {
    "alone": "alone",
    "bare": "of it bare",
    "blocked": "blocked",
    "late": "of it late",
    "cpu": "CPU for messages",
}


def variables(netmod: str) -> dict[str, str]:
    """TCP over the link, for all that is between the ranks."""
    removed = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if name not in removed} | {
        "MPIR_CVAR_NOLOCAL": "1",  # no memory is shared, whoever has the same kernel
        "MPIR_CVAR_CH4_NETMOD": netmod,
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": LINK,
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": LINK,
    }


def measured(gbit: float, args: argparse.Namespace) -> dict[str, Any]:
    """What the ranks have seen over a link of this rate."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("must have 2 cores, one for each rank. Got 1.")
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("mpiexec must be there. Got none. Install ringcore[mpich].")
    with tempfile.TemporaryDirectory() as folder, two_hosts(gbit) as hosts:
        found = Path(folder) / "found.json"
        program = [sys.executable, str(HERE / "overlap_rank.py"), "--interface", LINK, "--json", str(found)]
        program += ["--tokens", *map(str, args.tokens), "--masks", *args.masks, "--rounds", str(args.rounds)]
        command = [mpiexec]
        for host, core in zip(hosts, cores, strict=False):
            command += ["-n", "1", *on(host, "taskset", "-c", str(core)), *program, ":"]
        try:
            subprocess.run(command[:-1], env=variables(args.netmod), timeout=args.timeout, check=True)
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"the ranks must end well. Got exit code {error.returncode}.") from None
        except subprocess.TimeoutExpired:
            raise SystemExit(f"the ranks must end within {args.timeout:g} s. They did not.") from None
        return {"link": gbit, "netmod": args.netmod, **json.loads(found.read_text())}


def figures(ranks: list[dict[str, Any]], which: str) -> dict[str, float]:
    """Of one call: those of the rank with less overlap."""
    rows = []
    for rank in ranks:
        exchanges = [x for x in rank["exchanges"] if which == "forward+backward" or x["pass"] == "forward"]
        total = {name: sum(x[name] for x in exchanges) for name in ("alone", "blocked", "late", "cpu")}
        total["bare"] = sum(x["alone"] for x in exchanges if x["computed"] == 0)
        rows.append(
            {
                "bytes": sum(x["bytes"] for x in exchanges),
                "seconds": rank["both" if which == "forward+backward" else "forward"],
                **{f"{name}_ms": 1e3 * total[name] for name in TIMES},
                "overlap": 1 - total["blocked"] / total["alone"],
                "overlap_if_not_late": 1 - (total["blocked"] - total["late"]) / total["alone"],
            }
        )
    return min(rows, key=lambda row: row["overlap"])


def table(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over rounds, a row for each link, length, mask and pass."""
    rows = []
    for run in runs:
        cases = dict.fromkeys((row["tokens"], row["mask"]) for row in run["rows"])
        for tokens, mask in cases:
            rounds = [r["ranks"] for r in run["rows"] if (r["tokens"], r["mask"]) == (tokens, mask)]
            for which in PASSES:
                found = [figures(ranks, which) for ranks in rounds]
                medians = {name: median(row[name] for row in found) for name in found[0]}
                case = {"link": run["link"], "tokens": tokens, "mask": mask, "pass": which}
                rows.append({**case, "rounds": len(found), **medians})
    return rows


def check_bytes(run: dict[str, Any]) -> float:
    """Bytes on the link for each byte of a message: a little over 1, if all went this way."""
    ratios: list[float] = [
        rank["on_link"] / sum(x["bytes"] for x in rank["exchanges"])
        for row in run["rows"]
        for rank in row["ranks"]
    ]
    if min(ratios) < 1:
        raise SystemExit(f"all messages must go over the link. Got {min(ratios):.3f} of their bytes there.")
    return median(ratios)


def show(rows: list[dict[str, Any]]) -> None:
    """As Markdown."""
    times = " | ".join(f"{name}, ms" for name in TIMES.values())
    print("| link, Gbit/s | tokens per rank | mask | pass | call, s | MB each way |", times, end=" ")
    print("| overlap | if not late |")
    print("|---" * (8 + len(TIMES)) + "|")
    for row in rows:
        what = f"| {row['link']:g} | {row['tokens']:,} | {row['mask']} | {row['pass']} | {row['seconds']:.2f}"
        moved = " | ".join([f"{row['bytes'] / 1e6:.1f}", *(f"{row[f'{name}_ms']:.1f}" for name in TIMES)])
        print(f"{what} | {moved} | {row['overlap']:.3f} | {row['overlap_if_not_late']:.3f} |")


def results(runs: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """For a file: the table, and every exchange of the longest calls, in seconds."""
    shared = {
        name: runs[0][name] for name in ("machine", "library", "netmod", "cores_per_rank", "heads", "dim")
    }
    longest = max(row["tokens"] for row in rows)
    calls = [
        {"link": run["link"], **call} for run in runs for call in run["rows"] if call["tokens"] == longest
    ]
    links = [{name: run[name] for name in ("link", "gbit", "link_bytes_per_byte")} for run in runs]
    content: dict[str, Any] = rounded({**shared, "links": links, "table": rows, "longest": calls})
    return content


def rounded(found: Any) -> Any:
    """Six digits after the point: microseconds."""
    if isinstance(found, dict):
        return {name: rounded(x) for name, x in found.items()}
    if isinstance(found, list):
        return [rounded(x) for x in found]
    return round(found, 6) if isinstance(found, float) else found


def main() -> None:
    """Print a table; write all that was found to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gbit", type=float, nargs="+", default=[1, 10])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 16384], help="per rank")
    parser.add_argument("--masks", nargs="+", choices=["full", "causal"], default=["full", "causal"])
    parser.add_argument("--rounds", type=int, default=1, help="of the longest; shorter ones get more")
    parser.add_argument("--netmod", choices=["ofi", "ucx"], default="ofi", help="of MPICH")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for each link")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    end_tidily()
    try:
        runs = [measured(gbit, args) for gbit in args.gbit]
    except NoHosts as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    for run in runs:
        run["link_bytes_per_byte"] = round(check_bytes(run), 4)
        rates = ", ".join(f"{way} {rate:.2f}" for way, rate in run["gbit"].items())
        print(f"Link of {run['link']:g} Gbit/s. Plain mpi4py gets: {rates} Gbit/s.", end=" ")
        print(f"Bytes on the link for each of a message: {run['link_bytes_per_byte']:.3f}.")
    rows = table(runs)
    show(rows)
    for which in PASSES:
        reached = [r["overlap"] for r in rows if (r["link"], r["tokens"], r["pass"]) == (10, 16384, which)]
        if reached:
            print(f"{which}, 16,384 tokens per rank, 10 Gbit/s: {min(reached):.3f}; goal: {GOAL}.")
    if args.json:
        args.json.write_text(json.dumps(results(runs, rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
