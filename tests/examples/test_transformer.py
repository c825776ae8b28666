"""examples/transformer: losses and gradients on any number of ranks, against code that shares none."""

from __future__ import annotations

from functools import cache

import dna
import model
import numpy as np
import pytest
from blockwise import Place

import ringcore as rc
from tests.examples.decoders import (
    SIZES,
    Found,
    S,
    U,
    assert_within_rounding,
    distances,
    letters,
    on_one_rank,
    on_ring,
    weights_of,
)

LAYOUTS = {
    "zigzag": lambda ranks: rc.Layout.zigzag(length=S, ranks=ranks),
    "striped": lambda ranks: rc.Layout.striped(length=S, ranks=ranks, block=4),
    "one rank has nothing": lambda ranks: rc.Layout.from_lengths([S - 60, 60, 0] if ranks == 3 else [S, 0]),
}

once = cache(on_one_rank)


@pytest.fixture(scope="module")
def natural() -> dict[str, float]:
    """How wrong the example is in float32 on one rank: what rounding does to this problem."""
    return distances(once("float32"), once("float64"))


@pytest.fixture(scope="module")
def dense() -> dict[str, Found]:
    """The reference, in float32 too."""
    pytest.importorskip("jax", reason="jax is not installed")
    from tests.examples.dense_decoder import loss_and_gradient

    text, named = letters(), dict(weights_of("float64").named())
    return {dtype: loss_and_gradient(named, text[:-1], text[1:], SIZES.heads, dtype) for dtype in U}


# ------------------------------------------------------------------------ loss and gradient


@pytest.mark.parametrize("dtype", U)
@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_loss_and_summed_gradients_are_equal_on_one_two_and_three_ranks(natural, kind, ranks, dtype):
    assert_within_rounding(on_ring(LAYOUTS[kind](ranks), dtype), once(dtype), dtype, natural)


@pytest.mark.parametrize("dtype", U)
@pytest.mark.parametrize("ranks", [1, 3])
def test_equal_to_a_dense_transformer_that_jax_differentiates(dense, ranks, dtype):
    natural = distances(dense["float32"], dense["float64"])
    found = on_ring(rc.Layout.zigzag(length=S, ranks=ranks), dtype)
    assert_within_rounding(found, dense["float64"], dtype, natural)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_chunk_changes_nothing(natural, chunk):
    found = on_ring(rc.Layout.zigzag(length=S, ranks=2), "float64", chunk)
    assert_within_rounding(found, once("float64"), "float64", natural)


def test_the_gradient_is_that_of_central_differences():
    """Along one random direction for each parameter, in float64, on two ranks.

    Richardson's combination of the steps h and 2 h errs by O(h^4), and by u / h.
    """
    layout, text = rc.Layout.zigzag(length=31, ranks=2), letters(31)
    _, grads = on_ring(layout, "float64")
    rng, h = np.random.default_rng(0), 2e-4

    def loss_at(name: str, change: np.ndarray) -> float:
        moved = weights_of("float64")
        dict(moved.named())[name][...] += change

        def on_rank(ring):
            place = Place.of(ring, layout, chunk=5)
            return model.loss(moved, SIZES, dna.shard(text, 0, ring, layout), place)

        return rc.run_ranks(2, on_rank, timeout=60.0)[0]

    for name, grad in grads.items():
        drawn, size = rng.standard_normal(grad.shape), np.linalg.norm(grad)
        along = grad / size + drawn / np.linalg.norm(drawn)
        near, far = ((loss_at(name, x * along) - loss_at(name, -x * along)) / (2 * x) for x in (h, 2 * h))
        print(name, ((4 * near - far) / 3 - np.sum(grad * along)) / size)
        assert (4 * near - far) / 3 == pytest.approx(np.sum(grad * along), abs=1e-9 * size), name


def test_fewer_tokens_than_ranks():
    natural = distances(once("float32", 3), once("float64", 3))
    found = on_ring(rc.Layout.zigzag(length=3, ranks=5), "float64")
    assert_within_rounding(found, once("float64", 3), "float64", natural)


def test_where_no_label_is_a_base_there_is_nothing_to_learn():
    layout, weights = rc.Layout.contiguous(length=4, ranks=2), weights_of("float64")

    def on_rank(ring):
        shard = dna.shard(np.array([0, 4, 4, 4, 4], np.uint8), 0, ring, layout)
        return model.loss_and_gradient(weights, SIZES, shard, Place.of(ring, layout, chunk=8))

    for loss, grads in rc.run_ranks(2, on_rank, timeout=60.0):
        assert loss == 0 and not grads.flat.any()
