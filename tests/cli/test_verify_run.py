"""Cases on ranks: what is wrong is found and named, and an error on one rank makes no other wait."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.cli.errors import InputError
from ringcore.cli.verify.cases import Case, default_length, plan
from ringcore.cli.verify.libraries import load
from ringcore.cli.verify.outcome import Fault, Measure, Outcome
from ringcore.cli.verify.run import on_ring, on_threads
from ringcore.cli.verify.together import everywhere, from_first
from tests.cli import defects

SOON = 5.0  # seconds: far below the timeout of 60


def cases(ranks: int, only: str = "", dtypes: Sequence[str] = ("float32",), **options: Any) -> list[Case]:
    return plan([(load("numpy"), dtypes)], ranks, default_length(ranks), only=only, **options)


def quantities(outcome: Outcome) -> set[str]:
    return {fault.quantity for fault in outcome.faults}


def solved(ranks: int, only: str, backend: Any, **options: Any) -> list[Outcome]:
    return list(on_threads(ranks, cases(ranks, only, **options), timeout=60.0, backend=backend))


# ------------------------------------------------------------------ what is wrong is found

DEFECTS: Mapping[str, tuple[Any, set[str]]] = {
    "values": (defects.WrongValues(), {"out", "dq", "dk"}),
    "sum": (defects.WrongSum(), {"out", "lse", "dq", "dk", "dv"}),
    "dq": (defects.WrongGradient(which="q"), {"dq"}),
    "dk": (defects.WrongGradient(which="k"), {"dk"}),
    "dv": (defects.WrongGradient(which="v"), {"dv"}),
    "a hop's dk": (defects.DroppedHop(), {"dk"}),
    "unsteady": (defects.Unsteady(), {"repeat"}),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_and_named(defect: str) -> None:
    backend, expected = DEFECTS[defect]
    (outcome,) = solved(2, "layout/zigzag", backend)
    assert quantities(outcome) == expected
    for fault in outcome.faults:
        measures = [m for m in outcome.measures if m.quantity == fault.quantity]
        if fault.quantity != "repeat":
            assert measures[0].worst > measures[0].bound
            assert (
                f"{fault.quantity} must be within 8 u cond" in fault.message
                and "In Problem(" in fault.message
            )
    assert all(m.worst < 2 for m in outcome.measures if m.quantity not in expected)


def test_a_hop_that_is_dropped_is_found_wherever_something_travels_to_dk() -> None:
    found = {o.case.row for o in solved(3, "layout", defects.DroppedHop()) if "dk" in quantities(o)}
    assert found == {
        "contiguous",
        "uneven, empty ranks",
        "striped",
        "zigzag",
        "k unlike q",
        "more ranks than tokens",
    }
    assert all(o.passed for o in solved(1, "layout/zigzag", defects.DroppedHop()))


def test_a_nan_that_is_swallowed_is_found() -> None:
    outcomes = solved(2, "NaN", defects.Swallows(), dtypes=["float64"])  # the one in which the number is NaN
    assert {o.case.row for o in outcomes if not o.passed} == {"in a key"}
    (key,) = (o for o in outcomes if not o.passed)
    assert {m.worst for m in key.measures if m.quantity == "out"} == {np.inf}
    assert "a NaN or inf of the inputs reaches it" in key.faults[0].message


@pytest.mark.parametrize(("ranks", "backend"), [(1, None), (2, GenericBackend((16, 16))), (5, None)])
def test_sound_kernels_pass(ranks: int, backend: Any) -> None:
    outcomes = solved(ranks, "", backend, quick=True, dtypes=("float64", "float32", "float16"))
    assert len(outcomes) == 41
    assert [o.faults for o in outcomes] == [()] * 41
    assert max(m.share for o in outcomes for m in o.measures if m.bound == 8) < 0.5
    assert sum(o.bytes for o in outcomes) > 0 or ranks == 1


# ------------------------------------------------------------------ checks made up for the purpose


@dataclass(frozen=True)
class MadeUp:
    """A check of which every part can be given."""

    work: Callable[[rc.Ring], Mapping[str, Any]] = lambda ring: {"x": ring.allreduce(np.ones(2))}
    sends: bool = True
    shared: bool = True
    verdict: Callable[[Mapping[str, Any]], tuple[list[Measure], list[Fault]]] = lambda whole: ([], [])

    def solve(self, ring: rc.Ring, backend: Any) -> Mapping[str, Any]:
        return self.work(ring)

    def gather(self, ring: rc.Ring, mine: Mapping[str, Any]) -> Mapping[str, Any]:
        return mine

    def is_shared(self, name: str) -> bool:
        return self.shared

    def must_send(self) -> bool:
        return self.sends

    def judge(self, whole: Mapping[str, Any]) -> tuple[list[Measure], list[Fault]]:
        return self.verdict(whole)


def case(row: str = "", **parts: Any) -> Case:
    return Case("numpy", "float64", "made up", row, 0, MadeUp(**parts))


def on_all(ranks: int, many: Sequence[Case]) -> list[list[Outcome]]:
    """The outcomes that each rank of one ring sees."""
    return rc.run_ranks(ranks, lambda ring: list(on_ring(ring, many)), timeout=60.0)


def broken(ring: rc.Ring) -> Mapping[str, Any]:
    """Rank 1 fails while the others wait for it."""
    if ring.rank == 1:
        raise MemoryError("no room")
    return {"x": ring.allreduce(np.ones(2))}


def agreed(ring: rc.Ring) -> Mapping[str, Any]:
    """All ranks raise the same, as the arguments of one are wrong."""
    return {"x": ring.gather(np.ones((2 + ring.rank, 2)), rc.Layout.contiguous(length=4, ranks=2))}


def hopeless(whole: Mapping[str, Any]) -> tuple[list[Measure], list[Fault]]:
    raise ZeroDivisionError("the comparison itself")


@pytest.mark.parametrize(
    ("parts", "quantity", "text"),
    [
        ({"work": lambda ring: {"x": np.ones(2)}}, "wire", "No byte was"),
        (
            {"work": lambda ring: {"x": ring.allreduce(np.ones(2)) + ring.rank}},
            "wire",
            "Those of rank 1 are not",
        ),
        ({"verdict": hopeless}, "error", "ZeroDivisionError: the comparison itself"),
        ({"verdict": lambda whole: ([], [Fault("out", "bad")])}, "out", "bad"),
        ({"work": agreed}, "error", "(on rank 1 of 2)"),
    ],
)
def test_a_case_that_fails_is_followed_by_the_next(parts: dict[str, Any], quantity: str, text: str) -> None:
    many = [case("before"), case("it", **parts), case("after")]
    in_threads = list(on_threads(2, many, timeout=60.0))
    first, second = on_all(2, many)
    for outcomes in (in_threads, first):
        assert [o.passed for o in outcomes] == [True, False, True]
        assert not any(o.stops for o in outcomes)
        (fault,) = outcomes[1].faults
        assert fault.quantity == quantity and text in fault.message
    assert [o.case.row for o in second] == ["before", "it", "after"]


def test_results_of_each_rank_may_differ_where_they_are_shards() -> None:
    (outcome,) = on_threads(
        2, [case(shared=False, work=lambda ring: {"x": ring.allreduce(np.ones(2)) + ring.rank})], timeout=60
    )
    assert outcome.passed


def test_what_any_rank_sends_counts() -> None:
    def from_one_to_two(ring: rc.Ring) -> Mapping[str, Any]:
        got = ring.gather(np.ones((3 * (ring.rank == 1), 2)), rc.Layout.from_lengths([0, 3, 0]), root=2)
        return {"x": np.zeros(2) if got is None else got}

    (outcome,) = on_threads(3, [case(shared=False, work=from_one_to_two)], timeout=60)
    assert outcome.passed and outcome.messages == 1 and outcome.bytes >= 48
    (outcome,) = on_threads(3, [case(sends=False, work=lambda ring: {"x": np.ones(2)})], timeout=60)
    assert outcome.passed and (outcome.messages, outcome.bytes) == (0, 0)


def test_nan_is_the_same_as_nan_and_minus_zero_not_the_same_as_zero() -> None:
    signs = iter([0.0, -0.0])
    same = case(sends=False, work=lambda ring: {"x": np.array([np.nan, np.inf])})
    other = case(sends=False, work=lambda ring: {"x": np.array([next(signs)])})
    one, two = on_threads(1, [same, other], timeout=60)
    assert one.passed and quantities(two) == {"repeat"}
    assert "x differ on rank 0" in two.faults[0].message


def test_an_error_on_one_thread_is_the_cases_own() -> None:
    begin = time.monotonic()
    before, failed, after = on_threads(3, [case(), case(work=broken), case()], timeout=60.0)
    assert time.monotonic() - begin < SOON
    assert before.passed and after.passed and not failed.stops
    assert failed.faults[0].message.startswith("MemoryError: no room (on rank 1 of 3)")


def test_an_error_on_one_rank_of_a_ring_ends_the_run_on_all_and_nobody_waits() -> None:
    begin = time.monotonic()
    every = on_all(3, [case("before"), case("it", work=broken), case("after")])
    assert time.monotonic() - begin < SOON
    for rank, outcomes in enumerate(every):
        assert [o.case.row for o in outcomes] == ["before", "it"]
        assert [o.stops for o in outcomes] == [False, True]
        (fault,) = outcomes[-1].faults
        assert f"(on rank {rank})" in fault.message
        assert fault.quantity == ("error" if rank == 1 else "peer")
    assert "MemoryError: no room" in every[1][-1].faults[0].message


def test_one_rank_alone_has_nobody_to_break_with() -> None:
    (outcomes,) = on_all(1, [case(work=lambda ring: 1 / 0), case(sends=False)])  # type: ignore[dict-item]
    assert [(o.passed, o.stops) for o in outcomes] == [(False, False), (True, False)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_ring_finds_the_same_as_threads_do(ranks: int) -> None:
    many = cases(ranks, quick=True, dtypes=("float64", "float16"))
    alone = list(on_threads(ranks, many, timeout=60.0))
    first, *others = on_all(ranks, many)
    strip = lambda o: dataclasses.replace(o, case=None)  # type: ignore[arg-type]  # noqa: E731
    assert [strip(o) for o in first] == [strip(o) for o in alone]
    for outcomes in others:
        assert [o.case for o in outcomes] == many and all(o.passed for o in outcomes)


# ------------------------------------------------------------------ one verdict for all


def test_what_one_rank_cannot_do_none_does() -> None:
    def fn(ring: rc.Ring) -> str:
        def action() -> int:
            if ring.rank == 1:
                raise InputError("it is not here.")
            return 7

        with pytest.raises(InputError) as caught:
            everywhere(ring, action)
        assert everywhere(ring, lambda: ring.rank) == ring.rank
        assert from_first(ring, 5 + ring.rank) == 5
        return str(caught.value)

    assert rc.run_ranks(3, fn) == ["it is not here. (on rank 1 of 3)"] * 3


def test_what_no_rank_can_do_is_no_ranks_own() -> None:
    def action() -> int:
        raise InputError("nowhere.")

    def fn(ring: rc.Ring) -> str:
        with pytest.raises(InputError) as caught:
            everywhere(ring, action)
        return str(caught.value)

    assert rc.run_ranks(2, fn) == ["nowhere."] * 2


def test_ranks_that_would_do_different_things_do_nothing() -> None:
    def fn(ring: rc.Ring) -> str:
        with pytest.raises(InputError) as caught:
            everywhere(ring, lambda: 40 + ring.rank // 2, lambda n: f"{n} problems")
        return str(caught.value)

    (text,) = set(rc.run_ranks(3, fn))
    assert "Rank 0 has 40 problems, rank 2 41 problems." in text
