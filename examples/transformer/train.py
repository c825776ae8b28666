"""Train a small decoder on DNA whose sequence is spread over ranks.

Ranks are the processes that mpirun has started, or threads of this one:

    python examples/transformer/train.py
    python examples/transformer/train.py --ranks 3 --length 10007
    mpirun -n 2 python examples/transformer/train.py --json run.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from optim import OPTIMIZERS
from threadpoolctl import threadpool_info, threadpool_limits
from training import LAYOUTS, Run, train
from weights import Sizes

import ringcore as rc
from ringcore.cli.errors import InputError
from ringcore.cli.world import is_first, world
from ringcore.launcher import launched

CHLOROPLAST = Path(__file__).parents[1] / "data" / "NC_000932.fa.gz"
CHOICES = {"optimizer": list(OPTIMIZERS), "layout": list(LAYOUTS), "dtype": ["float32", "float64"]}
HELP = {
    "length": "tokens of one step, all in one sequence",
    "steps": "how many",
    "optimizer": "what makes a step of a gradient",
    "rate": "learning rate",
    "dtype": "of weights and activations",
    "seed": "of the first weights and of the windows",
    "layout": "which tokens a rank holds",
    "chunk": "tokens of a rank worked on at a time",
    "layers": "decoder layers",
    "width": "features of a token between layers",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "hidden": "width inside the feedforward layer",
}


class Parser(argparse.ArgumentParser):
    """Under mpirun every process reads the same arguments; one of them says what is wrong."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        if is_first():
            print(f"{self.prog}: {message}", file=sys.stderr)
        sys.exit(2)


def parser() -> Parser:
    """The command line; defaults are those of `Run` and `Sizes`."""
    args = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument(
        "fasta", type=Path, nargs="?", default=CHLOROPLAST, help="plain or gzip; its first record"
    )
    args.add_argument("--ranks", type=int, metavar="N", help="threads of this process (not under mpirun)")
    args.add_argument("--json", type=Path, metavar="FILE", help="write losses, norms and memory here")
    for field in (*dataclasses.fields(Run), *dataclasses.fields(Sizes)):
        if field.name != "fasta":
            args.add_argument(
                f"--{field.name.replace('_', '-')}",
                type=type(field.default),
                default=field.default,
                choices=CHOICES.get(field.name),
                help=f"{HELP[field.name]}; {field.default} by default",
            )
    return args


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0, or 2 if the input is at fault."""
    args = parser()
    given = vars(args.parse_args(argv))

    def chosen(kind: type[Run | Sizes]) -> dict[str, Any]:
        return {field.name: given[field.name] for field in dataclasses.fields(kind)}

    try:
        run, sizes = Run(**chosen(Run)), Sizes(**chosen(Sizes))
    except ValueError as error:
        args.error(str(error))
    try:
        told = on_ranks(given["ranks"], run, sizes)
    except InputError as error:
        args.error(str(error))
    if told is not None and given["json"] is not None:
        given["json"].write_text(json.dumps(told, indent=1) + "\n")
    return 0


def on_ranks(threads: int | None, run: Run, sizes: Sizes) -> dict[str, Any] | None:
    """Train on the ranks that there are: processes under mpirun, threads of this process otherwise."""

    def work(ring: rc.Ring) -> dict[str, Any] | None:
        def say(line: str) -> None:
            if ring.rank == 0:
                print(line, flush=True)

        return train(ring, run, sizes, say)

    if launched() is None:
        ranks = 1 if threads is None else threads
        if ranks < 1:
            raise InputError(f"--ranks must be at least 1. Got {ranks}.")
        with blas_threads(blas_cores() // ranks):
            return rc.run_ranks(ranks, work)[0]
    if threads is not None:
        raise InputError("--ranks is for threads of one process; under mpirun leave it out.")
    ring = world()
    with blas_threads(ring.transport.cores or blas_cores()):
        return work(ring)


def blas_cores() -> int:
    """How many threads BLAS would use: OMP_NUM_THREADS and the like, or the cores."""
    return max((x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"), default=1)


def blas_threads(cores: int) -> threadpool_limits:
    """Keep this rank's products to its share of the cores: too many threads only wait for each other."""
    return threadpool_limits(max(1, min(cores, blas_cores())), user_api="blas")


if __name__ == "__main__":
    sys.exit(main())
