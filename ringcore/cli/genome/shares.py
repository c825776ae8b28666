"""Which bases each rank needs: those of its own queries and keys, and the contexts before them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

import ringcore as rc
from ringcore.cli.genome import encode


@dataclass(frozen=True)
class Shares:
    """How the queries and keys of a genome, and with them its bases, are divided among ranks.

    Attributes
    ----------
    bases, ranks, width : int
        N, P and w.

    Examples
    --------
    >>> shares = Shares(bases=5, ranks=2, width=3)
    >>> shares.queries.count(0), shares.keys.count(0), shares.lengths(0)
    (3, 6, (6, 9, 0))
    """

    bases: int
    ranks: int
    width: int

    @property
    def queries(self) -> rc.Layout:
        """Of the N + 1 positions."""
        return rc.Layout.contiguous(length=self.bases + 1, ranks=self.ranks)

    @property
    def keys(self) -> rc.Layout:
        """Of the 2 (N + 1) positions of both strands."""
        return rc.Layout.contiguous(length=2 * (self.bases + 1), ranks=self.ranks)

    @property
    def codes(self) -> rc.Layout:
        """Of what `cut` returns: about 3 N / P + 2 w bases a rank."""
        return rc.Layout.from_lengths([sum(self.lengths(rank)) for rank in range(self.ranks)])

    def lengths(self, rank: int) -> tuple[int, int, int]:
        """Bases in a rank's stretches: of queries, of forward keys, of reverse keys."""
        start, stop = span(self.keys, rank)
        middle = min(max(self.bases + 1, start), stop)
        counts = (self.queries.count(rank), middle - start, stop - middle)
        first, second, third = (count + self.width if count else 0 for count in counts)
        return first, second, third

    def cut(self, strands: encode.Codes) -> encode.Codes:
        """The stretches of all ranks, one after the other.

        Parameters
        ----------
        strands : array of uint8, shape (2 (N + 1),)
            `encode.both_strands` of the genome.
        """
        parts: list[encode.Codes] = []
        for rank in range(self.ranks):
            forward = strands[: strands.size // 2]
            parts.append(encode.stretch(forward, *span(self.queries, rank), self.width))
            parts += encode.key_stretches(strands, *span(self.keys, rank), self.width)
        return np.concatenate(parts)

    def parted(self, codes: encode.Codes, rank: int) -> tuple[encode.Codes, encode.Codes, encode.Codes]:
        """A rank's part of `cut` as its three stretches."""
        first, second, _ = accumulate(self.lengths(rank))
        return codes[:first], codes[first:second], codes[second:]


def span(layout: rc.Layout, rank: int) -> tuple[int, int]:
    """First position of a rank, and the one after its last; (0, 0) if it has none."""
    ranges = layout.ranges(rank)
    return (ranges[0].start, ranges[0].stop) if ranges else (0, 0)
