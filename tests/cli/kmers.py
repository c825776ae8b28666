"""An oracle that knows nothing of attention: a dictionary of k-mers, in plain Python on plain strings."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

BASES = frozenset("ACGT")
COMPLEMENT = str.maketrans("ACGT", "TGCA")


class Match(NamedTuple):
    """A maximal exact match, as a line of repeats.bed tells it: half-open, left copy first."""

    start: int
    end: int
    partner_start: int
    partner_end: int
    strand: str


class Truth(NamedTuple):
    """All maximal exact matches, and those that a query with exactly one partner lies in."""

    matches: frozenset[Match]
    with_single_partner: frozenset[Match]

    def certain(self, least: int = 24) -> frozenset[Match]:
        """Matches that must be found."""
        return frozenset(match for match in self.with_single_partner if match.end - match.start >= least)


def reverse_complement(text: str) -> str:
    return text.translate(COMPLEMENT)[::-1]


def truth(text: str, k: int) -> Truth:
    """Maximal exact matches of at least k bases on either strand; forward ones at distance k or more."""
    places: dict[str, list[int]] = defaultdict(list)
    for start in range(len(text) - k + 1):
        word = text[start : start + k]
        if set(word) <= BASES:
            places[word].append(start)
    hits: set[tuple[str, int, int]] = set()  # strand, diagonal, place
    partners: Counter[int] = Counter()
    for word, starts in places.items():
        others = places.get(reverse_complement(word), [])
        for start in starts:
            for other in starts:
                if abs(other - start) >= k:
                    hits.add(("+", other - start, start))
                    partners[start] += 1
            for other in others:
                hits.add(("-", other + start, start))
                partners[start] += 1
    matches, single = set(), set()
    for strand, diagonal, first, last in _runs(hits):
        match = _match(strand, diagonal, first, last, k)
        matches.add(match)
        if any(partners[start] == 1 for start in range(first, last + 1)):
            single.add(match)
    return Truth(frozenset(matches), frozenset(single))


def _runs(hits: set[tuple[str, int, int]]) -> list[tuple[str, int, int, int]]:
    """Neighbouring places on one diagonal, joined: (strand, diagonal, first place, last place)."""
    runs = []
    for strand, diagonal, place in sorted(hits):
        if (strand, diagonal, place - 1) in hits:
            continue
        last = place
        while (strand, diagonal, last + 1) in hits:
            last += 1
        runs.append((strand, diagonal, place, last))
    return runs


def _match(strand: str, diagonal: int, first: int, last: int, k: int) -> Match:
    """The left copy is the one that starts first, whichever of the two was asked about."""
    # k-mers that are each other's reverse complement start at places that sum to the diagonal.
    other = first + diagonal if strand == "+" else diagonal - last
    left, right = sorted((first, other))
    length = last - first + k
    return Match(left, left + length, right, right + length, strand)
