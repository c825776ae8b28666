from __future__ import annotations

import pytest

from ringcore.cli.errors import InputError
from ringcore.cli.genome.fasta import RawRecord
from ringcore.cli.genome.region import Region, parse, select

TWO = [RawRecord("one", "ACGTA"), RawRecord("HLA:01", "GGTT")]
ONE = TWO[:1]


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("3-4", Region(None, 3, 4)),
        ("one:1-1", Region("one", 1, 1)),
        ("HLA:01:2-3", Region("HLA:01", 2, 3)),
        ("a-b:1,000-2,000", Region("a-b", 1000, 2000)),
    ],
)
def test_parse(text: str, region: Region) -> None:
    assert parse(text) == region


@pytest.mark.parametrize(
    "text", ["", "one", "one:", "5", "-5", "5-", "one:3-2", "0-4", "one:a-b", "1-2-3x", ",-,"]
)
def test_a_region_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="--region must"):
        parse(text)


def test_a_region_is_counted_from_1_with_both_ends() -> None:
    (record,) = select(TWO, [], "one:2-3")
    assert (record.name, record.codes.tolist(), record.offset) == ("one", [1, 2], 1)
    (record,) = select(TWO, ["HLA:01"], "4-4")
    assert (record.name, record.codes.tolist(), record.offset) == ("HLA:01", [3], 3)


def test_all_records_or_the_chosen_ones_in_the_files_order() -> None:
    assert [record.name for record in select(TWO, [], None)] == ["one", "HLA:01"]
    assert [record.name for record in select(TWO, ["HLA:01", "one"], None)] == ["one", "HLA:01"]


def test_letters_of_records_that_are_not_chosen_do_not_matter() -> None:
    assert [record.name for record in select([*TWO, RawRecord("protein", "MEFIL")], ["one"], None)] == ["one"]


@pytest.mark.parametrize(
    ("records", "names", "region", "message"),
    [
        (TWO, ["three"], None, "--record must name a record of the file. Got 'three'. There is: one, HLA:01"),
        (TWO, [], "three:1-2", "--region must name a record of the file. Got 'three'"),
        (TWO, [], "1-2", "--region must name one record. Got '1-2', which fits 2 of"),
        (TWO, ["one"], "HLA:01:1-2", "which fits 0 of the records chosen"),
        (ONE, [], "1-6", "--region must lie within record 'one', which has 5 bases"),
    ],
)
def test_a_choice_that_is_not_there(
    records: list[RawRecord], names: list[str], region: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        select(records, names, region)
