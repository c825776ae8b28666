"""Rank 0's orders and what the others make of them, on any ring: here the ranks are threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ringcore as rc
from ringcore.cli.errors import InputError
from ringcore.cli.genome import attend, estimate, memory, processes, settings
from ringcore.cli.genome.attend import Echo
from ringcore.cli.genome.fasta import RawRecord, to_codes
from ringcore.cli.genome.processes import ProcessRanks, follow, leading
from ringcore.cli.genome.ranks import ThreadRanks
from ringcore.cli.stop import Stopped
from tests.cli.genomes import random_bases

pytestmark = pytest.mark.timeout(60)

PIECE = random_bases(60, seed=1)
CODES = to_codes(RawRecord("x", PIECE + random_bases(200, seed=2) + PIECE))
ASKED = settings.choose(CODES.size)


def outcomes(ranks: int, lead: Callable[[ProcessRanks], Any]) -> list[Any]:
    """What comes of each rank, which is what it returns or raises."""

    def rank(ring: rc.Ring) -> Any:
        try:
            if ring.rank:
                return follow(ring)
            with leading(ring) as crew:
                return lead(crew)
        except (InputError, Stopped, ZeroDivisionError) as error:
            return error

    return rc.run_ranks(ranks, rank, timeout=20)


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_orders_are_followed_until_all_are_dismissed(ranks: int) -> None:
    def lead(crew: ProcessRanks) -> tuple[Echo, Echo, int]:
        first = crew.echo(CODES, ASKED, rc.Meter())
        crew.survey(CODES.size, ASKED)
        second = crew.echo(CODES[:2], settings.choose(2, 5, 1.5), rc.Meter())
        aside = crew.aside(lambda: 7)
        crew.dismiss()
        return first, second, aside

    (first, second, aside), *others = outcomes(ranks, lead)
    assert others == [0] * (ranks - 1) and aside == 7
    alone = ThreadRanks(1)
    for echo, codes, asked in ((first, CODES, ASKED), (second, CODES[:2], settings.choose(2, 5, 1.5))):
        expected = alone.echo(codes, asked, rc.Meter())
        np.testing.assert_array_equal(echo.partner, expected.partner)
        np.testing.assert_allclose(echo.bits, expected.bits, rtol=1e-4, atol=1e-4)
    assert (first.partner >= 0).sum() > 80


def test_the_survey_groups_ranks_by_machine_and_goes_by_the_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [
        {"name": name, "boot": boot, "free": 10 * rank, "rate": rate}
        for rank, (name, boot, rate) in enumerate(
            [("box", "a", 5.0), ("box", "b", 3.0), ("box", "a", 4.0), ("c", "c", 9.0)]
        )
    ]
    monkeypatch.setattr(processes, "_reports", lambda *_: reports)

    def lead(crew: ProcessRanks) -> Any:
        survey = crew.survey(CODES.size, ASKED)
        crew.dismiss()
        return survey

    survey = outcomes(4, lead)[0]
    assert survey.scores_per_second == 4 * 3.0
    assert survey.machines == [
        memory.Machine("box", (0, 2), 0), memory.Machine("box", (1,), 10), memory.Machine("c", (3,), 30)
    ]  # fmt: skip


def test_each_rank_reports_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: 5)
    monkeypatch.setattr(estimate, "scores_per_second", lambda bases, _: float(bases))

    def lead(crew: ProcessRanks) -> Any:
        survey = crew.survey(100, ASKED)
        crew.dismiss()
        return survey

    survey = outcomes(3, lead)[0]
    assert survey.scores_per_second == 300
    assert survey.machines == [memory.Machine(memory.machine()[0], (0, 1, 2), 5)]


def test_what_rank_0_refuses_ends_the_others_with_the_same_code() -> None:
    def lead(crew: ProcessRanks) -> None:
        crew.aside(lambda: 1)
        raise InputError("no such file")

    first, *others = outcomes(3, lead)
    assert isinstance(first, InputError) and str(first) == "no such file"
    assert others == [2, 2]


def test_what_rank_0_refuses_in_the_middle_of_the_work_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def rank_0_has_none(ring: rc.Ring, *arguments: Any) -> Echo | None:
        if ring.rank == 0:
            raise MemoryError
        return attend.genome_rank(ring, *arguments)

    def lead(crew: ProcessRanks) -> None:
        try:
            crew.echo(CODES, ASKED, rc.Meter())
        except MemoryError as error:
            raise InputError("not enough memory.") from error

    monkeypatch.setattr(processes, "genome_rank", rank_0_has_none)
    first, *others = outcomes(3, lead)
    assert isinstance(first, Stopped) and (str(first), first.exit_code) == ("not enough memory", 2)
    assert [type(other) for other in others] == [Stopped] * 2
    assert not any(other.aloud for other in others)


def test_a_rank_without_memory_says_so_and_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = attend.bits_per_base

    def one_has_none(following: Any, copies: Any, truth: Any, prior: float) -> Any:
        if len(truth) < 100:  # the last of three has one position fewer
            raise MemoryError("Unable to allocate 9 GiB")
        return bits(following, copies, truth, prior)

    monkeypatch.setattr(attend, "bits_per_base", one_has_none)
    codes = CODES[:298]  # 299 positions: 100, 100, 99

    def lead(crew: ProcessRanks) -> None:
        crew.echo(codes, ASKED, rc.Meter())

    first, second, third = outcomes(3, lead)
    assert all(isinstance(x, Stopped) and x.exit_code == 2 for x in (first, second, third))
    assert third.aloud and not second.aloud
    assert str(third) == "rank 2 of 3 has not enough memory: Unable to allocate 9 GiB"
    assert first.outcome == "Nothing was written." and "--region" in third.outcome


def test_a_defect_on_rank_0_is_no_refusal() -> None:
    def lead(crew: ProcessRanks) -> None:
        crew.aside(lambda: 1 / 0)

    first, *others = outcomes(2, lead)
    assert isinstance(first, ZeroDivisionError)
    assert isinstance(others[0], Stopped) and not others[0].aloud
