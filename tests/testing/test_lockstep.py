"""Hypothesis on ranks of their own: one verdict for all, and divergence is an error, not a hang."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import operator
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.testing import (
    LockstepDivergence,
    LockstepFailure,
    digest,
    lockstep,
    lockstep_settings,
    register_mpi_profile,
)


def on_each_rank(ranks, fn, timeout=20.0):
    """What ``fn`` returned or raised on each rank."""

    def body(ring):
        try:
            return fn(ring)
        except BaseException as error:
            return error

    return rc.run_ranks(ranks, body, timeout=timeout)


def property_of(ring, body, *, seed=0, examples=50, **strategies):
    """Run ``body(ring, **drawn)`` as a property in lockstep; returns the arguments it was called with."""
    calls = []

    @lockstep_settings(ring, seed=seed, max_examples=examples)
    @given(**strategies)
    @lockstep(ring)
    def prop(**drawn):
        calls.append(drawn)
        body(ring, **drawn)

    prop()
    return calls


# ------------------------------------------------------------------ passing and failing


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_all_ranks_draw_the_same_and_pass(ranks):
    calls = on_each_rank(ranks, lambda ring: property_of(ring, lambda ring, n: None, n=st.integers()))
    assert len(calls[0]) == 50
    assert all(each == calls[0] for each in calls)


@pytest.mark.parametrize("culprit", [0, 2])
def test_all_ranks_fail_and_shrink_together(culprit):
    calls = {}

    def body(ring, n):
        calls.setdefault(ring.rank, []).append(n)
        assert ring.rank != culprit or n < 17, f"{n} is too large"

    errors = on_each_rank(3, lambda ring: property_of(ring, body, n=st.integers(0, 10_000)))
    for rank, error in enumerate(errors):
        assert type(error) is LockstepFailure
        assert str(error).startswith(
            f"failed on rank {culprit} of 3.\nrank {culprit}: AssertionError: 17 is too large"
        )
        assert isinstance(error.__cause__, AssertionError) is (rank == culprit)
        assert "n=17" in "\n".join(error.__notes__), "not shrunk to the least example"
    assert calls[0] == calls[1] == calls[2]


def test_a_failure_inside_a_collective_leaves_the_ring_usable():
    def body(ring, n):
        total = int(ring.allreduce(np.array(n)))
        assert ring.rank != 1 or total < 30

    def fn(ring):
        with pytest.raises(LockstepFailure, match="failed on rank 1 of 2"):
            property_of(ring, body, n=st.integers(0, 1000))
        return int(ring.allreduce(np.array(ring.rank + 1)))

    assert on_each_rank(2, fn) == [3, 3]


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_rank_that_leaves_between_two_calls_keeps_nobody_waiting(culprit):
    """The others are in their next call by then, or in one after it, as this body goes on after errors."""

    def body(ring, n):
        ring.allreduce(np.array(n))
        if ring.rank == culprit:
            assert n < 17, "left early"
        for _ in range(2):
            with contextlib.suppress(ValueError):
                ring.allreduce(np.array(n))
        ring.gather(np.array([n]), rc.Layout.contiguous(length=3, ranks=3), axis=0)

    begin = time.monotonic()
    errors = on_each_rank(3, lambda ring: property_of(ring, body, n=st.integers(0, 1000)))
    assert time.monotonic() - begin < 15
    for error in errors:
        assert type(error) is LockstepFailure
        first, second = str(error).splitlines()[:2]
        assert first == f"failed on rank {culprit} of 3."
        assert second == f"rank {culprit}: AssertionError: left early"
        assert "n=17" in "\n".join(error.__notes__), "not shrunk to the least example"


def test_the_others_hear_which_example_was_left():
    def body(ring):
        if ring.rank == 1:
            raise KeyError("gone")
        ring.allreduce(np.array(1))

    def fn(ring):
        with pytest.raises(LockstepFailure, match=r"^failed on rank 1 of 2\.\nrank 1: KeyError") as caught:
            lockstep(ring)(body)(ring)
        return caught.value.__cause__

    first, second = on_each_rank(2, fn)
    assert isinstance(first, ValueError)
    assert "Rank 0 made allreduce, rank 1 its verdict on " in str(first)
    assert isinstance(second, KeyError)


def test_different_errors_on_different_ranks_are_one_failure():
    def body(ring, n):
        if n > 5:
            raise [ValueError("no"), KeyError("lost")][ring.rank]

    errors = on_each_rank(2, lambda ring: property_of(ring, body, n=st.integers(0, 100)))
    assert str(errors[0]) == str(errors[1])
    assert "failed on rank 0, 1 of 2.\nrank 0: ValueError: no\nrank 1: KeyError: 'lost'" in str(errors[0])
    assert [type(error.__cause__) for error in errors] == [ValueError, KeyError]


def test_what_one_rank_rejects_all_reject():
    """Also on the ranks that found nothing wrong with it, so that all count the same examples."""
    judged = {}

    def body(ring, n):
        judged.setdefault(ring.rank, []).append(n)
        assume(ring.rank != 1 or n % 2 == 0)

    results = on_each_rank(2, lambda ring: property_of(ring, body, examples=30, n=st.integers(0, 1000)))
    assert judged[0] == judged[1]
    assert sum(n % 2 == 0 for n in judged[0]) == 30
    assert len(results[0]) > 30


def test_a_skip_of_all_is_a_skip():
    def body(ring, n):
        pytest.skip("no GPU here")

    for outcome in on_each_rank(2, lambda ring: property_of(ring, body, n=st.integers())):
        assert isinstance(outcome, pytest.skip.Exception)


def test_the_value_is_handed_on():
    assert on_each_rank(2, lambda ring: lockstep(ring)(lambda x: x + 1)(41)) == [42, 42]


# ------------------------------------------------------------------ divergence


def divergence(fn, ranks=2, timeout=20.0):
    outcomes = on_each_rank(ranks, fn, timeout)
    assert all(isinstance(x, LockstepDivergence) for x in outcomes), outcomes
    return [str(x) for x in outcomes]


def test_different_examples_are_an_error_on_every_rank():
    for message in divergence(lambda ring: lockstep(ring)(lambda n: None)(ring.rank), 3):
        assert message.startswith("all ranks must draw the same example. In ")
        assert "#0 rank 0 drew" in message
        assert "rank 1" in message


def test_hypothesis_does_not_shrink_a_divergence():
    calls = []

    def fn(ring):
        @given(st.just(ring.rank))
        @lockstep(ring)
        def prop(n):
            calls.append(n)

        prop()

    divergence(fn)
    assert sorted(calls) == [0, 1]


def test_other_draws_within_the_body_are_an_error():
    def body(ring, data):
        for _ in range(1 + ring.rank):
            data.draw(st.integers())

    for message in divergence(lambda ring: property_of(ring, body, data=st.data())):
        assert "rank 1 has drawn otherwise than rank 0 from st.data()" in message


def test_draws_within_the_body_may_end_early_where_it_fails():
    def body(ring, data):
        n = data.draw(st.integers(0, 100))
        assert ring.rank == 0 or n < 17
        assert data.draw(st.booleans()) in (True, False)

    errors = on_each_rank(2, lambda ring: property_of(ring, body, data=st.data()))
    assert all(isinstance(error, LockstepFailure | LockstepDivergence) for error in errors)
    assert len({type(error) for error in errors}) == 1


def test_an_example_left_out_on_one_rank_is_an_error():
    def fn(ring):
        body = lockstep(ring)(lambda n: None)
        for n in (1, 1, 1):
            if n == 1 and ring.rank == 1:
                other = lockstep(ring)(lambda n: None)  # counts anew
                other(1)
            else:
                body(1)

    assert divergence(fn)[0].startswith("all ranks must be at the same example. Rank 0 is at ")


def test_a_skip_of_one_is_an_error():
    def body():
        pass

    def fn(ring):
        def maybe():
            if ring.rank == 1:
                pytest.skip("alone")

        maybe.__qualname__ = "maybe"
        return lockstep(ring)(maybe)()

    (message, _) = divergence(fn)
    assert message == "all ranks must leave maybe #0 alike. Rank 0 passed (NoneType), rank 1 left (Skipped)."


def test_a_rank_that_does_not_come_is_an_error_within_the_timeout():
    def fn(ring):
        if ring.rank == 0:
            return lockstep(ring)(lambda: None)()
        return "gone"

    outcomes = on_each_rank(2, fn, timeout=0.5)
    assert isinstance(outcomes[0], LockstepDivergence)
    assert isinstance(outcomes[0].__cause__, rc.RingError)


def test_a_ring_that_breaks_within_the_body_is_no_example_to_shrink():
    def fn(ring):
        def body():
            raise rc.PeerTimeout("rank 1 is silent", 1)

        return lockstep(ring)(body)()

    for message in divergence(fn):
        assert "PeerTimeout: rank 1 is silent" in message


def test_an_error_that_all_ranks_agreed_on_is_a_failure():
    def body(ring, n):
        if n > 5:
            raise rc.RingError("alike everywhere")

    for error in on_each_rank(2, lambda ring: property_of(ring, body, n=st.integers(0, 100))):
        assert type(error) is LockstepFailure


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_wants_to_stop_is_not_held_up(stop):
    def fn(ring):
        def body():
            raise stop

        lockstep(ring)(body)()

    with pytest.raises(stop):
        fn(rc.Ring())


# ------------------------------------------------------------------ settings


def test_the_seed_is_that_of_rank_0_and_printed(capsys):
    def fn(ring):
        return property_of(ring, lambda ring, n: None, seed=None, examples=20, n=st.integers(0, 10**9))

    calls = on_each_rank(3, fn)
    assert calls[0] == calls[1] == calls[2]
    (line,) = capsys.readouterr().out.splitlines()
    seed = int(line.partition("lockstep_settings(ring, seed=")[2].rstrip(")"))
    again = on_each_rank(
        3,
        lambda ring: property_of(ring, lambda ring, n: None, seed=seed, examples=20, n=st.integers(0, 10**9)),
    )
    assert again == calls


def test_settings_can_be_added():
    assert (
        len(
            on_each_rank(
                2, lambda ring: property_of(ring, lambda ring, n: None, examples=7, n=st.integers())
            )[0]
        )
        == 7
    )


def test_the_profile_has_what_ranks_can_keep():
    before = settings.get_current_profile_name()
    register_mpi_profile("ranks", max_examples=7, suppress_health_check=[HealthCheck.filter_too_much])
    assert settings.get_current_profile_name() == before
    profile = settings.get_profile("ranks")
    assert (profile.max_examples, profile.database, profile.deadline) == (7, None, None)
    assert not {Phase.explain, Phase.reuse} & set(profile.phases)
    assert {HealthCheck.filter_too_much, HealthCheck.too_slow} <= set(profile.suppress_health_check)


# ------------------------------------------------------------------ digest


@dataclasses.dataclass
class Point:
    x: object
    y: object = 0


class Plain:
    def __init__(self, x):
        self.x = x


SAME = [
    1,
    1.5,
    "a",
    None,
    b"b",
    (1, [2, {"k": {3}}]),
    np.arange(3.0),
    np.array([np.nan]),
    Point(np.ones(2)),
    types.SimpleNamespace(a=1),
    np,
    len,
    Plain,
    functools.partial(operator.add, 1),
    functools.partial(operator.add, 2),
    functools.partial(operator.mul, 1),
    Plain(1).__init__,
    Plain(2).__init__,
    [1].append,
    [2].append,
    np.random.default_rng(0),
    np.random.default_rng(1),
    np.random.default_rng(0).normal,
    types.SimpleNamespace(a=Plain(1)),
    collections.deque([Plain(1)]),
    collections.deque([Plain(2)]),
    np.array([Plain(1), None]),
    np.array([Plain(2), None]),
    "text at 0x7f00",
]


@pytest.mark.parametrize("index", range(len(SAME)))
def test_a_digest_tells_values_apart(index):
    mine = SAME[index]
    assert digest(mine) == digest(mine)
    others = [digest(other) for i, other in enumerate(SAME) if i != index]
    assert digest(mine) not in others


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (np.zeros(2), np.zeros(2), True),
        (np.zeros(2), np.zeros((2, 1)), False),
        (np.zeros(2), np.zeros(2, np.float32), False),
        (np.zeros(1000), np.concatenate([np.zeros(500), [1], np.zeros(499)]), False),  # alike in repr
        (Plain(1), Plain(1), True),  # whose repr is an address
        (Plain(1), Plain(2), False),
        (Point(1), Point(1), True),
        (Point(1), Point(2), False),
        ({"b", "a"}, {"a", "b"}, True),
        ([1], (1,), False),
        (1, True, False),
        (rc.Layout.zigzag(length=4, ranks=2), rc.Layout.zigzag(length=4, ranks=3), False),
    ],
)
def test_digests_compare_content(a, b, equal):
    assert (digest(a) == digest(b)) is equal


OTHER_PROCESS = """
import collections, functools, operator, types
import numpy as np
from ringcore.testing import digest

class Plain:
    __slots__ = ("x",)
    def __init__(self, x): self.x = x
    def __call__(self): pass

rng = np.random.default_rng(0)
rng.normal()
for thing in [
    functools.partial(Plain, Plain(1)), functools.partial(lambda x: x, 1), Plain(1).__call__,
    [Plain(1)].append, rng, rng.normal, np.random.RandomState(3), np.random.PCG64(4),
    types.SimpleNamespace(a=Plain(1)),
    collections.deque([Plain(1)]), np.array([Plain(1), None]), {"f": np.add, "g": len, "h": operator.add},
]:
    print(digest(thing))
"""


def test_digests_are_the_same_in_other_processes(tmp_path):
    """Where the same objects have other addresses: the second process has allocated more."""
    import ringcore_numpy
    import ringcore_threads

    folders = {str(Path(m.__file__).parents[1]) for m in (rc, ringcore_numpy, ringcore_threads)}
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    printed = []
    for first in ("", "kept = [bytearray(10_000_000), *map(str, range(10_000))]\n"):
        script = tmp_path / "digests.py"
        script.write_text(first + OTHER_PROCESS, encoding="utf-8")
        done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=True)
        printed.append(done.stdout.split())
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == len(printed[0]) == 12


@pytest.mark.parametrize(
    "thing",
    [threading.Lock(), (n for n in (1, 2)), [{"a": threading.Lock()}]],
    ids=lambda x: type(x).__name__,
)
def test_what_cannot_be_compared_is_refused(thing):
    with pytest.raises(TypeError, match="must have a content that ranks can compare"):
        digest(thing)


def test_what_holds_itself_is_refused():
    loop = Plain(1)
    loop.x = loop
    with pytest.raises(TypeError, match="must have a content that ranks can compare"):
        digest(loop)


def test_a_ring_is_the_same_on_every_rank():
    assert len(set(rc.run_ranks(3, digest))) == 1


def test_arrays_of_every_library_have_a_digest(xp):
    assert digest(xp.asarray(np.arange(3.0))) == digest(xp.asarray(np.arange(3.0)))
    assert digest(xp.asarray(np.arange(3.0))) != digest(xp.asarray(np.arange(3.0) + 1))
