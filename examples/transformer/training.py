"""The training loop: the same numbers, up to rounding, on any number of ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dna
import memory
import model
import numpy as np
from blockwise import Place
from dna import Codes
from fingerprint import digest, gathered, norms
from optim import OPTIMIZERS
from weights import Sizes, initial, zeros

import ringcore as rc
from ringcore.cli.errors import InputError

Say = Callable[[str], None]
"""Prints a line on rank 0, and nothing on the others."""

LAYOUTS = {"zigzag": rc.Layout.zigzag, "striped": rc.Layout.striped, "contiguous": rc.Layout.contiguous}


@dataclass(frozen=True)
class Run:
    """What is done; together with `weights.Sizes` all that the results depend on.

    Attributes
    ----------
    fasta : Path
    length : int
        S, the tokens of one step: one sequence.
    steps : int
    optimizer : {'adam', 'sgd'}
    rate : float
    dtype : {'float32', 'float64'}
    seed : int
        Of the first weights, and of the windows.
    layout : {'zigzag', 'striped', 'contiguous'}
    chunk : int
        Tokens of a rank that are worked on at a time.
    """

    fasta: Path
    length: int = 4096
    steps: int = 100
    optimizer: str = "adam"
    rate: float = 3e-3
    dtype: str = "float32"
    seed: int = 0
    layout: str = "zigzag"
    chunk: int = 512

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("steps", 0), ("chunk", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}. Got {getattr(self, name)}.")


def train(ring: rc.Ring, run: Run, sizes: Sizes, say: Say) -> dict[str, Any] | None:
    """Train on random windows of the first 70 % of a record, and test on what follows. Collective.

    Returns
    -------
    dict, or None on ranks other than 0
        All that there is to tell: what `train.py --json` writes.

    Raises
    ------
    InputError
        On every rank: the file cannot be used, or the record is too short.
    """
    genome, letters = _read(ring, run.fasta)
    seen = letters * 7 // 10
    if seen + run.length + 1 > letters:
        raise InputError(
            f"--length must be at most {max(0, letters - seen - 1)}: the test is one such stretch of the "
            f"last 30 % of the record, which has {letters} bases. Got {run.length}. Give a smaller one."
        )
    place = Place.of(ring, LAYOUTS[run.layout](length=run.length, ranks=ring.size), run.chunk)
    weights, optimizer = initial(sizes, run.seed, run.dtype), OPTIMIZERS[run.optimizer](run.rate)
    held_out = dna.shard(genome, seen, ring, place.layout)
    idle = memory.resident()
    say(f"{run.fasta.name}: {letters} bases, of which {seen} are for training")
    say(f"{weights.flat.size} parameters; each step {place.layout!r}, {place.count} tokens on rank 0")

    test_before = model.loss(weights, sizes, held_out, place)
    losses: list[float] = []
    seconds: list[float] = []
    gradient = zeros(sizes, run.dtype)
    rng = np.random.default_rng(run.seed)
    for step in range(run.steps):
        begin = time.perf_counter()
        window = dna.shard(genome, int(rng.integers(seen - run.length)), ring, place.layout)
        loss, gradient = model.loss_and_gradient(weights, sizes, window, place)
        optimizer.step(weights.flat, gradient.flat)
        losses.append(loss)
        seconds.append(time.perf_counter() - begin)
        say(f"step {step + 1:4d}  loss {_spoken(loss)}  {seconds[-1]:.2f} s")
    test_after = model.loss(weights, sizes, held_out, place)

    told: dict[str, Any] = {
        "run": {**asdict(run), "fasta": str(run.fasta)},
        "sizes": asdict(sizes),
        "ranks": ring.size,
        "tokens": [place.layout.count(rank) for rank in range(ring.size)],
        "losses": losses,
        "seconds": seconds,
        "test": {"before": test_before, "after": test_after},
        "gradient": norms(gradient),  # of the last step
        "weights": norms(weights),
        "digests": gathered(ring, digest(weights)),
        "memory": {"idle": gathered(ring, idle), "peak": gathered(ring, memory.peak())},
    }
    if genome is None:
        return None
    told["markov"] = {
        order: dna.markov_loss(genome[:seen], genome[seen : seen + run.length + 1], order) for order in (0, 3)
    }
    say(f"test, on bases never trained on: {_spoken(test_before)} before, {_spoken(test_after)} after")
    for order, nats in told["markov"].items():
        say(f"    a Markov chain of order {order} there: {_spoken(nats)}")
    return told


def _spoken(nats: float) -> str:
    return f"{nats:.4f} ({nats / np.log(2):.4f} bits a base)"


def _read(ring: rc.Ring, path: Path) -> tuple[Codes | None, int]:
    """The genome on rank 0, None on the others; its length on all. If rank 0 cannot read it, all raise."""
    genome, error = None, ""
    if ring.rank == 0:
        try:
            genome = dna.read(path)
        except (OSError, ValueError) as failure:
            error = str(failure)
    letters = int(ring.allreduce(np.array(-1 if error else 0 if genome is None else genome.size)))
    if letters < 0:
        raise InputError(error or f"rank 0 could not read {path}.")
    return genome, letters
