"""DNA as tokens: a FASTA file, windows of it, and each rank's shard of a window."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import ringcore as rc

Codes = NDArray[np.uint8]

BASES = 4
LETTERS = 5
"""A, C, G, T, and one for every ambiguous letter: it can be read, but is never to be predicted."""

_TABLE = np.full(256, BASES, np.uint8)
for _code, _letters in enumerate((b"Aa", b"Cc", b"Gg", b"TtUu")):
    _TABLE[list(_letters)] = _code


def read(path: Path) -> Codes:
    """Bases of the first record of a FASTA file, plain or gzip: 0, 1, 2, 3 for A, C, G, T, 4 for others.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not FASTA, or a broken gzip file.
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, zlib.error) as error:
            raise ValueError(f"{path} is broken: {error}. Copy or download it again.") from error
    if data[:1] != b">":
        raise ValueError(f"{path} must be FASTA: its first letter must be '>'. Got {data[:1]!r}.")
    first = data[1:].split(b"\n>", 1)[0]
    lines = first.split(b"\n")[1:]
    return _TABLE[np.frombuffer(b"".join(line.strip() for line in lines), np.uint8)]


class Shard(NamedTuple):
    """This rank's part of a sequence: letters, and for each the letter that follows it.

    Attributes
    ----------
    tokens, labels : array of uint8, shape (L,)
    """

    tokens: Codes
    labels: Codes


def shard(genome: Codes | None, start: int, ring: rc.Ring, layout: rc.Layout) -> Shard:
    """Each rank's part of the S tokens from ``start`` on, S being ``layout.length``. Collective.

    Parameters
    ----------
    genome : array of uint8, or None
        On rank 0 at least ``start + S + 1`` letters: the last token has a label, too. None on the others.
    start : int
    ring : Ring
    layout : Layout

    Notes
    -----
    Labels are made from the whole sequence and then go the way of the tokens. Shifting a shard by one
    would be wrong: the letter after the last of a stretch is on another rank.
    """
    tokens = labels = None
    if genome is not None:
        letters = genome[start : start + layout.length + 1]
        tokens, labels = letters[:-1], letters[1:]
    return Shard(*(ring.scatter(x, layout, root=0, axis=0) for x in (tokens, labels)))


def markov_loss(train: Codes, test: Codes, order: int) -> float:
    """What a model has to beat: nats per base of a Markov chain that looks back ``order`` bases.

    Its tables are counts over ``train``, plus one half each. Order 0 is base composition alone.

    Examples
    --------
    >>> train = np.array([0, 1] * 500, np.uint8)  # ACACAC...
    >>> bits = [markov_loss(train, train, order) / np.log(2) for order in (0, 1)]
    >>> [round(float(x), 2) for x in bits]
    [1.0, 0.0]
    """
    counts = np.full((LETTERS**order, BASES), 0.5)
    np.add.at(counts, _contexts_and_bases(train, order), 1)
    p = counts / counts.sum(axis=1, keepdims=True)
    return -float(np.log(p[_contexts_and_bases(test, order)]).mean())


def _contexts_and_bases(letters: Codes, order: int) -> tuple[NDArray[np.int64], Codes]:
    """For each base but the first: the ``order`` letters before it as one number, and the base.

    What would be before the first letter counts as A.
    """
    context = np.zeros(letters.size - 1, np.int64)
    for back in range(order):
        context[back:] += letters[: letters.size - 1 - back].astype(np.int64) * LETTERS**back
    known = letters[1:] < BASES
    return context[known], letters[1:][known]
