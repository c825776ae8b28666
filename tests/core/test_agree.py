"""Agreement: whatever goes wrong on one rank is raised alike on all, and nothing hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import ringcore as rc
from ringcore.agree import agree
from ringcore.errors import PeerFailed, PeerTimeout, RingError

TIMEOUT = 20.0


def errors(ranks: int, call: Callable[[rc.Ring], Any]) -> list[BaseException]:
    """What the call raises on each rank."""

    def on_rank(ring: rc.Ring) -> BaseException:
        try:
            result = call(ring)
        except Exception as error:
            return error
        raise AssertionError(f"no error on rank {ring.rank}: {result!r}")

    return rc.run_ranks(ranks, on_rank, timeout=TIMEOUT)


def agreed(ring: rc.Ring, check: Callable[[], Any], facts: Any = lambda _: {}, *local: Any) -> Any:
    return agree("test", ring, check, facts, *local)


@pytest.mark.parametrize("ranks", [1, 3])
def test_each_rank_gets_its_own_result_and_what_all_said(ranks: int) -> None:
    def on_rank(ring: rc.Ring) -> Any:
        return agreed(ring, lambda: ring.rank * 10, lambda x: {"what": "same"}, lambda x: [x, "r"])

    everybody = [[10 * rank, "r"] for rank in range(ranks)]
    assert rc.run_ranks(ranks, on_rank) == [(10 * rank, everybody) for rank in range(ranks)]


@pytest.mark.parametrize("kind", [ValueError, TypeError])
@pytest.mark.parametrize("wrong", [{0}, {2}, {1, 2}, {0, 1, 2}], ids=str)
def test_the_error_of_the_lowest_rank_that_failed_is_raised_on_all(
    kind: type[Exception], wrong: set[int]
) -> None:
    def call(ring: rc.Ring) -> Any:
        def check() -> None:
            if ring.rank in wrong:
                raise kind(f"x must be small. Got {ring.rank}.")

        return agreed(ring, check)

    lowest = min(wrong)
    found = errors(3, call)
    assert [(type(e), str(e)) for e in found] == [
        (kind, f"x must be small. Got {lowest}. (on rank {lowest} of 3)")
    ] * 3
    for rank, error in enumerate(found):
        assert (error.__cause__ is not None) == (rank in wrong), "a rank that failed shows where"


def test_one_rank_alone_raises_the_error_itself() -> None:
    class OwnError(ValueError):
        pass

    def check() -> None:
        raise OwnError("just this")

    (error,) = errors(1, lambda ring: agreed(ring, check))
    assert type(error) is OwnError and str(error) == "just this"


@pytest.mark.parametrize("raised", [
    KeyError("name"), ZeroDivisionError("by zero"), MemoryError("1 TB"), OverflowError("too large"),
    IndexError("7"), AttributeError("no such"),
], ids=lambda e: type(e).__name__)  # fmt: skip
def test_any_other_exception_reaches_all_as_ring_error(raised: Exception) -> None:
    """An argument of a kind that nobody thought of must not leave the others waiting."""

    def call(ring: rc.Ring) -> Any:
        def check() -> None:
            if ring.rank == 1:
                raise raised

        return agreed(ring, check)

    for error in errors(3, call):
        assert type(error) is RingError
        assert str(error) == f"{type(raised).__name__}: {raised} (on rank 1 of 3)"


def test_subclasses_of_the_usual_errors_become_what_every_rank_can_make() -> None:
    def check() -> None:
        json.loads("{")  # a ValueError whose constructor takes three arguments

    found = errors(2, lambda ring: agreed(ring, check))
    assert {type(e) for e in found} == {ValueError} and len({str(e) for e in found}) == 1


def test_the_first_fact_that_differs_is_named_with_both_values() -> None:
    def call(ring: rc.Ring) -> Any:
        return agreed(ring, lambda: None, lambda _: {
            "dtype": "float32", "scale": str(0.5 if ring.rank < 2 else 0.25), "side": f"side {ring.rank}",
        })  # fmt: skip

    found = errors(3, call)
    assert {str(e) for e in found} == {
        (
            "all ranks must pass the same scale. Rank 0 passed 0.5, rank 2 0.25. Make the call with equal "
            "arguments on every rank; only the arrays' rows differ."
        )
    }
    assert {type(e) for e in found} == {ValueError}


def test_long_facts_are_compared_to_their_end_but_told_in_short() -> None:
    """As of a layout of thousands of lengths: megabytes must not go from each rank to each other."""
    long = "3, " * 100_000

    def call(ring: rc.Ring) -> Any:
        try:
            return agreed(ring, lambda: None, lambda _: {"layout": long + str(ring.rank // 2)})
        finally:
            assert ring.traffic.control_bytes < 3000

    (text,) = {str(e) for e in errors(3, call)}
    assert (
        text.startswith("all ranks must pass the same layout. Rank 0 passed 3, 3, 3, ") and "rank 2" in text
    )
    assert len(text) < 1000


def test_an_error_goes_before_a_difference() -> None:
    def call(ring: rc.Ring) -> Any:
        def check() -> None:
            if ring.rank == 2:
                raise TypeError("x must be an array. Got None.")

        return agreed(ring, check, lambda _: {"scale": str(ring.rank)})

    assert {str(e) for e in errors(3, call)} == {"x must be an array. Got None. (on rank 2 of 3)"}


def test_texts_of_any_kind_arrive_whole() -> None:
    text = 'quotes " and \\ and \n, Umlaute äöü, 日本語, ' + "long " * 5000

    def check() -> None:
        raise ValueError(text)

    assert {str(e) for e in errors(2, lambda ring: agreed(ring, check))} == {f"{text} (on rank 0 of 2)"}


def test_it_moves_no_array_and_a_bounded_number_of_bytes() -> None:
    def on_rank(ring: rc.Ring) -> tuple[int, int]:
        agreed(ring, lambda: None, lambda _: {"scale": "0.5"})
        return ring.traffic.messages, ring.traffic.control_bytes

    for messages, control in rc.run_ranks(4, on_rank):
        assert messages == 0 and 0 < control < 400


def test_interrupts_are_not_held_back() -> None:
    class Interrupt(BaseException):
        pass

    def check() -> None:
        raise Interrupt

    with pytest.raises(Interrupt):
        rc.run_ranks(1, lambda ring: agreed(ring, check))


def test_a_rank_that_does_not_call_ends_the_others() -> None:
    def on_rank(ring: rc.Ring) -> Any:
        return None if ring.rank == 1 else agreed(ring, lambda: None)

    with pytest.raises((PeerFailed, PeerTimeout)):
        rc.run_ranks(3, on_rank, timeout=TIMEOUT)
