"""What a ring refuses, on every rank alike: other calls, other threads, splits that make no sense."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ringcore_numpy import NumpyBackend

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.errors import RingError

pytestmark = pytest.mark.timeout(60)
X = np.random.default_rng(0).standard_normal((2, 6, 4))


def errors(ranks: int, call: Callable[[rc.Ring], Any]) -> list[BaseException]:
    def on_rank(ring: rc.Ring) -> BaseException:
        try:
            call(ring)
        except Exception as error:
            return error
        raise AssertionError(f"no error on rank {ring.rank}")

    return rc.run_ranks(ranks, on_rank, timeout=20)


CALLS: dict[str, Callable[[rc.Ring], Any]] = {
    "attention": lambda ring: rc.attention(X, X, X, ring=ring),
    "attention_backward": lambda ring: rc.attention_backward(
        X, X, X, X, rc.Stats(X[..., 0], X[..., 0]), X, ring=ring
    ),
    "allreduce": lambda ring: ring.allreduce(X),
    "split": lambda ring: ring.split(0),
    "gather": lambda ring: ring.gather(X, rc.Layout.contiguous(length=12, ranks=2)),
    "feedforward_vjp": lambda ring: rc.feedforward_vjp(
        rc.FeedForward.init(4, 4, seed=0, dtype="float64"), X, ring=ring
    ),
}


@pytest.mark.parametrize("one", CALLS)
@pytest.mark.parametrize("other", CALLS)
def test_ranks_that_make_different_calls_all_hear_of_it(one: str, other: str) -> None:
    if one == other:
        return
    raised = errors(2, lambda ring: CALLS[one if ring.rank == 0 else other](ring))
    assert len({str(error) for error in raised}) == 1
    assert all(f"Rank 0 made {one}, rank 1 {other}" in str(error) for error in raised)


def test_a_second_thread_on_a_ring_is_refused() -> None:
    """Rank 0 uses its ring from two threads, while rank 1 has not come yet."""
    inside, refused, go = threading.Event(), threading.Event(), threading.Event()

    def fn(ring: rc.Ring) -> Any:
        if ring.rank == 1:
            go.wait(20)
            return ring.allreduce(np.ones(3))
        with ring.exclusive("a long call"):
            inside.set()

            def second() -> None:
                with pytest.raises(RingError, match="one thread at a time may use a ring"):
                    ring.allreduce(np.zeros(3))
                refused.set()

            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
        go.set()
        return ring.allreduce(np.ones(3))

    for total in rc.run_ranks(2, fn, timeout=20):
        assert total.tolist() == [2, 2, 2]
    assert inside.is_set() and refused.is_set()


NO_COLORS = [("a", TypeError), (1.5, TypeError), (None, TypeError), (2**70, ValueError)]


@pytest.mark.parametrize(("color", "kind"), NO_COLORS)
def test_a_split_that_makes_no_sense_on_one_rank_is_an_error_on_all(color: Any, kind: type) -> None:
    raised = errors(3, lambda ring: ring.split(color if ring.rank == 1 else 0))
    assert all(isinstance(error, kind) and "on rank 1 of 3" in str(error) for error in raised)


@pytest.mark.parametrize("ranks", [1, 2])
def test_tensors_that_require_gradients_are_refused(ranks: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.ones(2, 6, 4, requires_grad=True)
    raised = errors(ranks, lambda ring: rc.attention(x, x, x, ring=ring))
    assert all(isinstance(error, TypeError) and "detach()" in str(error) for error in raised)


@pytest.mark.parametrize("make", [GenericBackend, NumpyBackend])
@pytest.mark.parametrize("tile", [(0, 4), (4, -1), (4,), (1.5, 2)])
def test_a_tile_must_have_sides(make: Any, tile: Any) -> None:
    with pytest.raises(ValueError, match="tile must be"):
        make(tile=tile)


@pytest.mark.parametrize("scale", [1e-50, 1e40, float("nan"), 10**400])
def test_a_scale_must_be_within_the_dtype(scale: float) -> None:
    x = X.astype("float32")
    with pytest.raises(ValueError, match="scale must be"):
        rc.attention(x, x, x, scale=scale)


def test_masks_are_combined_by_operators_not_by_words() -> None:
    with pytest.raises(TypeError, match="by &"):
        _ = rc.causal() and rc.documents([3, 3])
    with pytest.raises(TypeError, match=r"ringcore\.dense"):
        _ = np.ones((6, 6), bool) & rc.causal()


def test_lengths_that_would_wrap_are_refused() -> None:
    for lengths in ([2**62] * 3, np.asarray([2**64 - 1], np.uint64)):
        with pytest.raises(ValueError, match="positions of a sequence"):
            rc.documents(lengths)
