"""From bases to repeats by attention, against the dictionary of k-mers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from ringcore.cli.genome import encode, repeats
from tests.cli.genomes import CHLOROPLAST, analysis, chloroplast, found, genomes, random_bases
from tests.cli.kmers import Match, reverse_complement, truth

P = random_bases(40, seed=9)
GAP, OTHER = random_bases(70, seed=10_009), random_bases(70, seed=20_009)
SELF = P[:15] + reverse_complement(P[:15])

PLANTED = {
    "forward": (GAP + P + OTHER + P + GAP[::-1], Match(70, 110, 180, 220, "+")),
    "reverse": (GAP + P + OTHER + reverse_complement(P) + GAP[::-1], Match(70, 110, 180, 220, "-")),
    "forward, at start and end": (P + OTHER + P, Match(0, 40, 110, 150, "+")),
    "reverse, at start and end": (P + OTHER + reverse_complement(P), Match(0, 40, 110, 150, "-")),
    "as long as the context, at the end": (P[:16] + OTHER + P[:16], Match(0, 16, 86, 102, "+")),
    "as long as the context, reverse": (
        P[:16] + OTHER + reverse_complement(P[:16]),
        Match(0, 16, 86, 102, "-"),
    ),
    "palindrome": (GAP + SELF + OTHER, Match(70, 100, 70, 100, "-")),
    "palindrome, at the start": (SELF + OTHER, Match(0, 30, 0, 30, "-")),
    "palindrome, at the end": (OTHER + SELF, Match(70, 100, 70, 100, "-")),
    "palindrome is everything": (SELF, Match(0, 30, 0, 30, "-")),
    "hairpin with a loop": (GAP + P + "ACA" + reverse_complement(P) + OTHER, Match(70, 110, 113, 153, "-")),
    "tandem": (GAP + P + P + OTHER, Match(70, 110, 110, 150, "+")),
    "overlapping": (GAP + P[:30] * 2 + P[:20] + OTHER, Match(70, 120, 100, 150, "+")),
    "everything twice": (P + P, Match(0, 40, 40, 80, "+")),
}


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_planted_repeat_is_found_to_the_base(name: str, ranks: int) -> None:
    text, match = PLANTED[name]
    all_matches = truth(text, 16).matches
    assert match in all_matches, "chance has made the planted copies longer: choose another seed"
    result = analysis(text, ranks=ranks)
    rows = [Match(*row) for row in result.repeats.rows()]
    assert match in rows
    assert set(rows) <= all_matches
    assert result.repeats.palindrome[rows.index(match)] == name.startswith("palindrome")


def test_nothing_is_found_where_nothing_repeats() -> None:
    assert found(random_bases(3000, seed=1)) == set()


@pytest.mark.parametrize("text", ["A", "ACGT", "N" * 40, "ACGTACGTACGTACG", "A" * 60])
def test_hardly_any_genome(text: str) -> None:
    assert found(text) <= truth(text, 16).matches


def test_a_hidden_neighbour_is_nobodys_partner() -> None:
    # Where all contexts are alike, the mean of the indices may well spell one that is too near to be seen.
    assert found("A" * 60) <= truth("A" * 60, 16).matches


SEEN: Counter[str] = Counter()


@given(genomes())
def test_found_is_a_subset_of_the_truth_and_has_all_that_is_certain(text: str) -> None:
    known = truth(text, 16)
    result = analysis(text, ranks=1 + len(text) % 3)
    rows = {Match(*row) for row in result.repeats.rows()}
    assert rows <= known.matches
    unconfirmed = repeats.find(encode.both_strands(result.record.codes), result.echo.partner, 16)
    assert unconfirmed.rows() == result.repeats.rows()  # honest names are never refused
    assert rows & known.certain() == known.certain()
    SEEN["genomes"] += 1
    SEEN["ambiguous"] += not set(text) <= set("ACGT")
    SEEN["certain"] += bool(known.certain())
    SEEN["same strand"] += any(row.strand == "+" for row in rows)
    SEEN["inverted"] += any(row.strand == "-" and row.start != row.partner_start for row in rows)
    SEEN["palindrome"] += any(row.strand == "-" and row.start == row.partner_start for row in rows)
    SEEN["overlapping"] += any(row.start < row.partner_start < row.end for row in rows)
    SEEN["not found"] += rows != known.matches


def test_the_property_met_the_hard_cases() -> None:
    if not SEEN:
        test_found_is_a_subset_of_the_truth_and_has_all_that_is_certain()
    for case in ("ambiguous", "certain", "same strand", "inverted", "palindrome", "overlapping", "not found"):
        assert SEEN[case] >= SEEN["genomes"] // 100 > 0, f"{case}: {dict(SEEN)}"


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_index_bits_destroy_the_report(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = random_bases(300, seed=21), random_bases(300, seed=22)
    text = GAP + one + two + OTHER + reverse_complement(one) + GAP[::-1] + two
    before = analysis(text, ranks=2)
    assert len(before.repeats) >= 2
    count = 2 * (len(text) + 1)
    order = np.random.default_rng(seed).permutation(count)
    order[1000:1010] = np.arange(1000, 1010)  # even if some bits happen to stay at their keys
    index_bits = encode.index_bits

    def shuffled(start: int, stop: int, bits: int) -> encode.Floats:
        return index_bits(0, count, bits)[order[start:stop]]

    monkeypatch.setattr(encode, "index_bits", shuffled)
    after = analysis(text, ranks=2)
    assert len(after.repeats) == 0
    np.testing.assert_allclose(after.echo.bits, before.echo.bits)  # bases are predicted as before


def spliced() -> str:
    """6,178 bases of the chloroplast that hold an end of each copy of its inverted repeat."""
    text = chloroplast()
    return text[84_000:87_000] + text[151_300:]


def test_a_piece_of_the_chloroplast() -> None:
    text = spliced()
    result = analysis(text, ranks=2)
    rows = {Match(*row) for row in result.repeats.rows()}
    known = truth(text, 16)
    assert rows <= known.matches
    assert {row for row in rows if row.end - row.start >= 24} >= known.certain()
    assert Match(170, 3000, 3348, 6178, "-") in rows
    inside = result.repeats.covered(len(text))
    assert result.echo.bits[inside].mean() < 0.1
    assert 1.9 < result.echo.bits[~inside].mean() < 2.1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_chloroplast() -> None:
    assert CHLOROPLAST.exists()
    text = chloroplast()
    result = analysis(text)
    rows = {Match(*row) for row in result.repeats.rows()}
    known = truth(text, 16)
    assert len(known.certain()) > 5
    assert rows <= known.matches
    assert known.certain() <= rows
    assert Match(84_170, 110_434, 128_214, 154_478, "-") in rows
    inside = result.repeats.covered(len(text))
    # The first 16 bases of each repeat have no copy of their context yet: short repeats cost their 2 bits.
    long = np.r_[84_170:110_434, 128_214:154_478]
    assert result.echo.bits[long].mean() < 0.05
    assert result.echo.bits[inside].mean() < 0.2
    assert 1.9 < result.echo.bits[~inside].mean() < 2.1
