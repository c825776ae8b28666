"""Partners of single positions become maximal exact matches.

All comparisons run on `encode.both_strands`: there a match with the reverse complement is an ordinary
match between two stretches, and the gaps, equal to nothing, end every run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ringcore.cli.genome.fasta import AMBIGUOUS

Codes = NDArray[np.uint8]
Index = NDArray[np.int64]

_FIRST_BLOCK, _LAST_BLOCK = 16, 4096


@dataclass(frozen=True)
class Repeats:
    """Maximal exact matches of a genome with itself, sorted by start; columns of equal length.

    Attributes
    ----------
    start, end : array of int64
        The left copy, half-open, counted from 0.
    partner_start, partner_end : array of int64
        The right copy. The two may overlap; for a palindrome they are the same.
    reverse : array of bool
        True where the right copy is the reverse complement of the left one.
    identity : array of float64
        Share of equal bases.
    """

    start: Index
    end: Index
    partner_start: Index
    partner_end: Index
    reverse: NDArray[np.bool_]
    identity: NDArray[np.float64]

    def __len__(self) -> int:
        return self.start.size

    @property
    def length(self) -> Index:
        """Bases in one copy."""
        return self.end - self.start

    @property
    def palindrome(self) -> NDArray[np.bool_]:
        """True where a stretch is its own reverse complement."""
        own: NDArray[np.bool_] = self.reverse & (self.start == self.partner_start)
        return own

    def rows(self) -> list[tuple[int, int, int, int, str]]:
        """(start, end, partner start, partner end, strand) of each."""
        strand = np.where(self.reverse, "-", "+")
        columns = (self.start, self.end, self.partner_start, self.partner_end, strand)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def covered(self, bases: int) -> NDArray[np.bool_]:
        """For each of N bases, whether it lies in a copy."""
        depth = np.zeros(bases + 1, np.int64)
        for begin, end in ((self.start, self.end), (self.partner_start, self.partner_end)):
            np.add.at(depth, begin, 1)
            np.add.at(depth, end, -1)
        deep: NDArray[np.bool_] = np.cumsum(depth[:-1]) > 0
        return deep

    def only(self, chosen: NDArray[np.bool_]) -> Repeats:
        """Those where ``chosen`` is True."""
        return Repeats(*(getattr(self, column.name)[chosen] for column in fields(self)))


def same_context(strands: Codes, a: Index, b: Index, width: int) -> NDArray[np.bool_]:
    """Whether the ``width`` bases before element a are, one by one, those before element b."""
    same: NDArray[np.bool_] = _equal_run(strands, a - 1, b - 1, -1, np.full(a.size, width)) == width
    return same


def find(strands: Codes, partner: Index, width: int) -> Repeats:
    """Extend every partner along its diagonal as far as the bases agree.

    Parameters
    ----------
    strands : array of uint8, shape (2 (N + 1),)
        `encode.both_strands` of the genome.
    partner : array of int64, shape (N + 1,)
        The key whose context, of ``width`` bases, equals that of each position; -1 for none.
    width : int
        w.

    Returns
    -------
    Repeats
        Each match once: of a match and its mirror image, the one whose left copy comes first.
    """
    a = np.flatnonzero(partner >= 0)
    b = partner[a]
    order = np.lexsort((a, b - a))
    a, b = a[order], b[order]
    diagonal = b - a
    # How far to the next partner on the same diagonal; where all bases up to it agree, it is one match.
    gap = np.full(a.size, strands.size)
    same = diagonal[1:] == diagonal[:-1]
    gap[:-1][same] = np.diff(a)[same]
    run = _equal_run(strands, a, b, 1, gap)
    ends = run < gap
    first = np.flatnonzero(np.concatenate([[True], ends[:-1]])[: a.size])
    last = np.flatnonzero(ends)
    before = _equal_run(strands, a[first] - 1, b[first] - 1, -1, np.full(first.size, strands.size))
    start, other = a[first] - before, b[first] - before
    return _folded(strands, start, other, a[last] + run[last] - start)


def confirmed(found: Repeats, partner: Index, copies: NDArray[np.float32], width: int) -> Repeats:
    """Without the matches that attention itself speaks against.

    A match is extended by comparing bases, so a single true name, come upon by chance, could bring a long
    one. But each of its queries has an exact copy, of weight 1. Where the soft number of copies is under
    1.5 that copy holds two thirds of the weight, so its name is sure and true. Where most of these
    queries name nobody, or a key that proves false, the names are not those of the keys: no such match
    is reported. With honest names this refuses none.

    Parameters
    ----------
    found : Repeats
        What `find` made of the partners.
    partner, copies : array, shape (N + 1,)
        As in `ringcore.cli.genome.attend.Echo`.
    width : int
        w.
    """
    single = copies < 1.5
    asked = np.append(0, np.cumsum(single))
    named = np.append(0, np.cumsum(single & (partner >= 0)))
    balance = np.zeros(len(found), np.int64)
    for begin, end in ((found.start, found.end), (found.partner_start, found.partner_end)):
        first, last = begin + width, end + 1  # queries whose whole context lies in the copy
        balance += 2 * (named[last] - named[first]) - (asked[last] - asked[first])
    return found.only(balance >= 0)


def _equal_run(strands: Codes, a: Index, b: Index, step: int, limit: Index) -> Index:
    """How many bases agree from elements a and b on, going by ``step``: at most ``limit``, for all pairs.

    Blocks double, so a long run costs few rounds and a short one few bases.
    """
    count = np.zeros(a.size, np.int64)
    active = np.arange(a.size)
    block = _FIRST_BLOCK
    edge = strands.size - 1  # the last element is a gap: whatever lies outside equals nothing
    while active.size:
        ahead = step * (count[active, None] + np.arange(block))
        at, bt = a[active, None] + ahead, b[active, None] + ahead
        x = strands[np.where((at < 0) | (at > edge), edge, at)]
        y = strands[np.where((bt < 0) | (bt > edge), edge, bt)]
        agree = (x == y) & (x < AMBIGUOUS)
        whole = agree.all(axis=1)
        count[active] += np.where(whole, block, agree.argmin(axis=1))
        active = active[whole & (count[active] < limit[active])]
        block = min(2 * block, _LAST_BLOCK)
    return np.minimum(count, limit)


def _folded(strands: Codes, start: Index, other: Index, length: Index) -> Repeats:
    """From elements of `both_strands` to forward positions, left copy first, each match once."""
    positions = strands.size // 2
    reverse = other >= positions
    partner = np.where(reverse, 2 * positions - 1 - other - length, other)
    left, right = np.minimum(start, partner), np.maximum(start, partner)
    rows = np.unique(np.stack([left, right, length, reverse.astype(np.int64)], axis=1), axis=0)
    left, right, length, flag = rows.T
    return Repeats(
        left, left + length, right, right + length, flag == 1,
        _identity(strands, left, right, length, flag == 1),
    )  # fmt: skip


def _identity(
    strands: Codes, left: Index, right: Index, length: Index, reverse: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Share of equal bases, counted anew from the reported coordinates."""
    positions = strands.size // 2
    other = np.where(reverse, 2 * positions - 1 - right - length, right)
    equal = [
        np.count_nonzero((strands[i : i + n] == strands[j : j + n]) & (strands[i : i + n] < AMBIGUOUS))
        for i, j, n in zip(left.tolist(), other.tolist(), length.tolist(), strict=True)
    ]
    return np.array(equal, np.float64) / np.maximum(length, 1)
