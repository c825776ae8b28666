"""Joining partners into matches, without attention: partners come from the oracle's dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcore.cli.genome import encode, repeats
from ringcore.cli.genome.fasta import RawRecord, to_codes
from tests.cli.genomes import genomes, random_bases
from tests.cli.kmers import Match, reverse_complement, truth


def found(text: str, partners: dict[int, int], width: int) -> repeats.Repeats:
    strands = encode.both_strands(to_codes(RawRecord("x", text)))
    partner = np.full(len(text) + 1, -1)
    for position, key in partners.items():
        partner[position] = key
    return repeats.find(strands, partner, width)


def every_partner(text: str, width: int) -> dict[int, list[int]]:
    """All keys with the context of each position, by comparing strings."""
    strands = text + "?" + reverse_complement(text) + "?"
    keys: dict[str, list[int]] = {}
    for key in range(width, len(strands)):
        if set(strands[key - width : key]) <= set("ACGT"):
            keys.setdefault(strands[key - width : key], []).append(key)
    hits = {}
    for position in range(width, len(text) + 1):
        same = keys.get(text[position - width : position], [])
        hits[position] = [key for key in same if key > len(text) or abs(key - position) >= width]
    return {position: same for position, same in hits.items() if same}


@given(genomes(), st.integers(3, 12), st.integers(0, 2**32 - 1))
def test_one_partner_a_position_gives_true_maximal_matches_and_all_of_those_it_names(
    text: str, width: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    all_partners = every_partner(text, width)
    named = {
        position: int(random.choice(keys)) for position, keys in all_partners.items() if random.random() < 0.5
    }
    result = found(text, named, width)
    rows = [Match(*row) for row in result.rows()]
    assert len(set(rows)) == len(rows) and rows == sorted(
        rows, key=lambda row: (row.start, row.partner_start)
    )
    assert set(rows) <= truth(text, width).matches
    for position, key in named.items():
        assert any(names(row, position, key, len(text), width) for row in rows)
    for row, identity, palindrome in zip(rows, result.identity, result.palindrome, strict=True):
        copy = text[row.partner_start : row.partner_end]
        assert text[row.start : row.end] == (copy if row.strand == "+" else reverse_complement(copy))
        assert identity == 1
        assert palindrome == (row.strand == "-" and row.start == row.partner_start)
    covered = {i for row in rows for a, b in (row[:2], row[2:4]) for i in range(a, b)}
    assert np.flatnonzero(result.covered(len(text))).tolist() == sorted(covered)


def names(row: Match, position: int, key: int, bases: int, width: int) -> bool:
    """Whether a match, or its mirror image, holds this query and its partner on the same diagonal."""
    if key <= bases:
        ends = {(row.start, row.partner_start), (row.partner_start, row.start)}
        return row.strand == "+" and any(
            key - position == b - a and a + width <= position <= a + len_of(row) for a, b in ends
        )
    other_end = 2 * bases + 1 - key  # where the partner's context begins on the reverse strand, seen forward
    return row.strand == "-" and any(
        a + width <= position <= a + len_of(row)
        and position - width - a == b + len_of(row) - other_end - width
        for a, b in {(row.start, row.partner_start), (row.partner_start, row.start)}
    )


def len_of(row: Match) -> int:
    return row.end - row.start


def test_no_partner_no_repeat() -> None:
    result = found("ACGT" * 5, {}, 4)
    assert len(result) == 0 and result.rows() == []
    assert not result.covered(20).any() and not result.palindrome.any()


@pytest.mark.parametrize("length", [16, 17, 31, 32, 33, 48, 49, 112, 113, 5000])
def test_one_partner_anywhere_is_enough_for_the_whole_match(length: int) -> None:
    piece = random_bases(length, seed=length)
    text = "T" + piece + "AC" + piece + "G"
    for place in {16, (length + 16) // 2, length}:
        result = found(text, {1 + place: 1 + place + length + 2}, 16)
        assert [Match(*row) for row in result.rows()] == [
            Match(1, 1 + length, 3 + length, 3 + 2 * length, "+")
        ]


def test_work_grows_with_the_bases_in_repeats_not_with_the_number_of_partners() -> None:
    length = 20_000
    piece = random_bases(length, seed=3)
    every_third = {place: place + length for place in range(16, length + 1, 3)}
    assert found(piece + piece, every_third, 16).rows() == [(0, length, length, 2 * length, "+")]


def test_an_ambiguous_base_ends_a_match_even_against_itself() -> None:
    left, right = random_bases(30, seed=5), random_bases(40, seed=6)
    text = left + "N" + right + left + "N" + right
    result = found(text, {30: 101, 71: 142}, 16)
    assert [row[:4] for row in result.rows()] == [(0, 30, 71, 101), (31, 71, 102, 142)]
