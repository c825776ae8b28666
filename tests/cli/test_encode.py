from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcore.cli.genome import encode
from ringcore.cli.genome.fasta import RawRecord, to_codes
from ringcore.cli.genome.shares import Shares, span
from tests.cli.genomes import genomes
from tests.cli.kmers import reverse_complement


def one_hot_before(text: str, position: int, width: int) -> list[float]:
    """The definition, letter by letter."""
    row = []
    for place in range(position - width, position):
        letter = text[place] if place >= 0 else "N"
        row += [float(letter == base) for base in "ACGT"]
    return row


@given(genomes(), st.integers(1, 20), st.data())
def test_any_stretch_of_keys_and_values_is_what_the_definition_says(
    text: str, width: int, data: st.DataObject
) -> None:
    codes = to_codes(RawRecord("x", text))
    strands = encode.both_strands(codes)
    other = reverse_complement(text)
    count = 2 * (len(text) + 1)
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    expected_keys, expected_values = [], []
    for key in range(start, stop):
        strand, position = (text, key) if key <= len(text) else (other, key - len(text) - 1)
        expected_keys.append(one_hot_before(strand, position, width))
        following = strand[position] if position < len(text) else "N"
        signs = [1.0 if digit == "1" else -1.0 for digit in reversed(f"{key:0{encode.bits_needed(count)}b}")]
        expected_values.append([float(following == base) for base in "ACGT"] + signs)
    forward, reverse = encode.key_stretches(strands, start, stop, width)
    keys = encode.keys(forward, reverse, width)
    values = encode.values(np.concatenate([forward[width:], reverse[width:]]), start, count)
    assert keys.dtype == values.dtype == np.float32
    assert keys.tolist() == expected_keys
    assert values.tolist() == expected_values


@given(genomes(), st.integers(1, 20), st.integers(1, 9))
def test_each_rank_gets_the_stretches_of_its_own_queries_and_keys(text: str, width: int, ranks: int) -> None:
    codes = to_codes(RawRecord("x", text))
    strands = encode.both_strands(codes)
    shares = Shares(codes.size, ranks, width)
    cut = shares.cut(strands)
    assert shares.codes.length == cut.size
    for rank in range(ranks):
        mine = shares.codes.shard(cut, rank, axis=0)
        assert mine.size <= 3 * -(-(codes.size + 1) // ranks) + 3 * width
        queries, *keys = shares.parted(mine, rank)
        places = shares.queries.positions(rank)
        assert encode.contexts(queries, width).tolist() == [one_hot_before(text, i, width) for i in places]
        start, stop = span(shares.keys, rank)
        assert np.arange(start, stop).tolist() == shares.keys.positions(rank).tolist()
        for part, expected in zip(keys, encode.key_stretches(strands, start, stop, width), strict=True):
            assert part.tolist() == expected.tolist()


@given(st.integers(1, 2**40), st.data())
def test_signs_of_one_index_are_read_back(keys: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, keys - 1))
    bits = encode.index_bits(index, index + 1, encode.bits_needed(keys))
    assert encode.decode(0.2 * bits, 0.1).tolist() == [index]


@given(st.integers(2, 2**20), st.data())
def test_a_key_with_more_than_half_of_the_weight_is_read_from_the_mean(
    keys: int, data: st.DataObject
) -> None:
    count = encode.bits_needed(keys)
    one, *others = data.draw(st.lists(st.integers(0, keys - 1), min_size=2, max_size=9))
    weight = data.draw(st.floats(0.56, 1))
    mean = weight * encode.index_bits(one, one + 1, count)
    for other in others:
        mean += (1 - weight) / len(others) * encode.index_bits(other, other + 1, count)
    assert encode.decode(mean, 0.1).tolist() == [one]


@pytest.mark.parametrize("bit", [0.0, 0.09, -0.09])
def test_one_unsure_bit_is_enough_to_name_nobody(bit: float) -> None:
    assert encode.decode(np.array([[1, -1, bit]], np.float32), 0.1).tolist() == [-1]
