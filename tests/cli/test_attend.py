"""What attention says about each position, against plain float64 loops over strings."""

from __future__ import annotations

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcore as rc
from ringcore.cli.genome import attend, encode, settings
from ringcore.cli.genome.attend import Echo, genome_rank
from ringcore.cli.genome.fasta import RawRecord, to_codes
from ringcore.cli.genome.settings import Settings
from tests.cli.genomes import genomes, random_bases
from tests.cli.kmers import reverse_complement
from tests.profiles import examples


def echo_of(text: str, asked: Settings, ranks: int = 1) -> Echo:
    codes = to_codes(RawRecord("x", text))

    def rank(ring: rc.Ring) -> Echo | None:
        return genome_rank(ring, codes if ring.rank == 0 else None, codes.size, asked)

    first, *others = rc.run_ranks(ranks, rank)
    assert all(other is None for other in others)
    assert first is not None
    return first


def by_hand(text: str, w: int, b: float, prior: float) -> tuple[list[float], list[float]]:
    """Bits and copies by the formula of docs/genome.md."""
    strands = [text, reverse_complement(text)]
    all_bits, all_copies = [], []
    for i in range(len(text) + 1):
        weights = dict.fromkeys("ACGT", 0.0)
        total = 0.0
        for strand, letters in enumerate(strands):
            for j in range(len(letters) + 1):
                if strand == 0 and abs(i - j) < w:
                    continue
                equal = sum(
                    text[i - t] == letters[j - t] and text[i - t] in "ACGT"
                    for t in range(1, w + 1)
                    if i - t >= 0 and j - t >= 0
                )
                weight = math.exp(b * (equal - w))
                total += weight
                if j < len(letters) and letters[j] in "ACGT":
                    weights[letters[j]] += weight
        all_copies.append(total)
        if i < len(text):
            mass = sum(weights.values()) + prior
            known = text[i] in "ACGT"
            all_bits.append(-math.log2((weights[text[i]] + prior / 4) / mass) if known else math.nan)
    return all_bits, all_copies


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    "text",
    ["A", "N", "ACGTACG", random_bases(50, 1), random_bases(20, 2) * 3, random_bases(30, 4) + "NNRAC" * 4],
)
def test_bits_and_copies_are_those_of_the_formula(text: str, ranks: int) -> None:
    w, b = 6, 2.0
    echo = echo_of(text, Settings(w, b), ranks)
    bits, copies = by_hand(text, w, b, 0.01)
    assert echo.bits.shape == (len(text),) and echo.copies.shape == echo.partner.shape == (len(text) + 1,)
    np.testing.assert_allclose(echo.copies, copies, rtol=2e-5)
    np.testing.assert_allclose(echo.bits, bits, rtol=1e-4, atol=1e-5)


def test_a_copy_predicts_and_a_new_base_costs_two_bits() -> None:
    piece, rest = random_bases(200, seed=1), random_bases(400, seed=2)
    echo = echo_of(rest[:200] + piece + rest[200:] + reverse_complement(piece), settings.choose(800))
    inside = np.r_[216:400, 616:800]
    assert echo.bits[inside].mean() < 0.02
    assert 1.95 < np.delete(echo.bits, np.r_[200:400, 600:800]).mean() < 2.1
    np.testing.assert_allclose(echo.copies[inside], 1, atol=0.01)


def test_a_copy_that_ends_with_the_record_is_seen_and_predicts_nothing_after_it() -> None:
    piece = random_bases(16, seed=3)
    echo = echo_of(piece + "G" + random_bases(100, 4) + piece, settings.choose(133))
    assert echo.partner[16] == 133  # the key after the last base
    assert echo.bits[16] == pytest.approx(2, abs=0.01)
    assert echo.partner[133] == 16


def test_an_ambiguous_base_predicts_nothing_and_matches_nothing() -> None:
    piece = random_bases(40, seed=5)
    echo = echo_of(piece + "C" + piece[:20] + "N" + piece[21:], settings.choose(82))
    assert np.flatnonzero(np.isnan(echo.bits)).tolist() == [61]
    assert (echo.partner[57:62] >= 0).all() and (echo.partner[62:78] == -1).all()
    assert (echo.copies[62:78] < 0.1).all() and (echo.partner[78:] >= 0).all()


def test_two_equal_copies_name_nobody() -> None:
    piece = random_bases(60, seed=6)
    text = piece + random_bases(50, 7) + piece + random_bases(50, 8) + piece
    echo = echo_of(text, settings.choose(len(text)))
    assert (echo.copies[16:61] > 1.9).all()
    assert (echo.partner[16:61] == -1).all()


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_a_false_name_is_refused_base_by_base(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    monkeypatch.setattr(attend, "_CHECKED_AT_A_TIME", at_a_time)
    text = "ACGTTACGAA"
    strands = encode.both_strands(to_codes(RawRecord("x", text)))
    both = text + "." + reverse_complement(text) + "."
    rng, true = np.random.default_rng(0), 0
    for _ in range(50):
        names = rng.integers(-1, strands.size, len(text) + 1)
        expected = [
            key if key >= 3 and i >= 3 and both[key - 3 : key] == text[i - 3 : i] else -1
            for i, key in enumerate(names.tolist())
        ]
        true += sum(key >= 0 for key in expected)
        given = names.copy()
        assert attend.true_partners(strands, names, 3).tolist() == expected
        assert (names == given).all()
    assert 20 < true < 200


def test_only_a_sure_name_of_a_key_that_was_seen_counts() -> None:
    positions, asked = 11, Settings(3, 3.0)  # 22 keys, numbered with 8 bits
    count = encode.bits_needed(2 * positions)

    def named(key: int, place: int, copies: float = 1.0) -> int:
        bits = encode.index_bits(key, key + 1, count)
        return int(attend.named_partners(bits, np.array([copies]), np.array([place]), positions, asked)[0])

    for place in range(positions):
        for key in range(256):
            seen = key in range(22) and not (
                key < 11 and key in (place - 2, place - 1, place, place + 1, place + 2)
            )
            assert named(key, place) == (key if seen else -1)
    assert [named(8, 3, copies) for copies in (0.4, 0.6)] == [-1, 8]


@hypothesis.settings(max_examples=examples(60))
@given(genomes(), st.integers(2, 8))
def test_any_number_of_ranks_names_the_same_partners(text: str, ranks: int) -> None:
    asked = settings.choose(len(text))
    one, many = echo_of(text, asked), echo_of(text, asked, ranks)
    np.testing.assert_array_equal(one.partner, many.partner)
    np.testing.assert_allclose(one.bits, many.bits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(one.copies, many.copies, rtol=1e-4)


def test_the_meter_counts_the_scores() -> None:
    meter = rc.Meter()
    codes = to_codes(RawRecord("x", random_bases(500, 1)))
    rc.run_ranks(2, genome_rank, codes, codes.size, settings.choose(500), meter)
    assert meter.scores == pytest.approx(attend.scores(500), rel=0.1)


def test_no_rank_holds_the_contexts_of_the_whole_genome(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    contexts = encode.contexts

    def spy(codes: encode.Codes, width: int) -> encode.Floats:
        made = contexts(codes, width)
        built.append(len(made))
        return made

    monkeypatch.setattr(encode, "contexts", spy)
    codes = to_codes(RawRecord("x", random_bases(999, 1)))
    rc.run_ranks(4, genome_rank, codes, 999, settings.choose(999))
    assert sum(built) == 3 * 1000  # queries once, keys of two strands once, over all ranks
    assert max(built) == 500
