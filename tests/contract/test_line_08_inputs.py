"""Contract, line 8: inputs are never written to, and may be read-only."""

from __future__ import annotations

import numpy as np
import pytest

import ringcore as rc
from ringcore.testing import And, Call, DenseBits, DrawnMask, Problem
from ringcore.testing.arrays import to_numpy
from tests.contract.problems import CHOICES, kernels, layouts_of, variant


def problem_of(xp, ranks, turn):
    """A problem that goes through every branch: partial tiles, an unseen row, a NaN, a dense mask."""
    side, way = CHOICES[turn % 4]
    mask = DrawnMask(And(Call("causal"), Call("keys", (1, 99))), DenseBits() if side == "kv" else None)

    def spoil(values):
        values["v"][..., 5, 0] = np.nan

    layouts = layouts_of(14, ranks)
    problem = Problem(
        xp=xp.xp, q_layout=layouts[turn % len(layouts)], mask=mask, heads=(2, 1), side=side, way=way,
        dtype=("float32", "float64")[turn % 2], seed=turn,
        seq_axis=(-2, -3)[turn % 2],
    )  # fmt: skip
    return variant(problem, change=spoil, readonly=xp.name == "numpy-readonly")


def copies(arrays):
    return [to_numpy(x).tobytes() for x in arrays]


@pytest.mark.parametrize("xp", ["numpy", "numpy-readonly", "array-api-strict", "torch"], indirect=True)
def test_line_08_nothing_that_goes_in_is_changed(xp):
    """JAX arrays cannot be changed."""
    for turn, ranks in enumerate(range(1, 9)):
        problem = problem_of(xp, ranks, turn)
        kernel = kernels(xp)[turn % len(kernels(xp))]()

        def on_rank(ring, problem=problem, kernel=kernel):
            given = problem.shards(ring.rank)
            options = problem.options(ring.rank)
            mask = options["mask"]
            before = copies([*given, *mask.arrays])
            (out, lse), pullback = rc.attention_vjp(
                *given[:3], ring=ring, return_lse=True, backend=kernel, **options
            )
            results = copies([out, lse])
            first = copies(pullback(given.dout, given.dlse))
            again = copies(pullback(given.dout, given.dlse))
            assert first == again  # nor what is kept for the pullback
            assert copies([out, lse]) == results
            assert copies([*given, *mask.arrays]) == before

        rc.run_ranks(ranks, on_rank, timeout=30.0)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_line_08_residuals_are_not_changed_either(ranks):
    """They may be read-only, as other frameworks hand them over."""
    for turn, (side, way) in enumerate(CHOICES):
        layout = layouts_of(14, ranks)[turn % 4]
        problem = Problem(xp=np, q_layout=layout, heads=(2, 1), side=side, way=way, dtype="float32")
        problem = variant(problem, readonly=True)
        kernel = kernels("numpy")[turn % 3]()

        def on_rank(ring, problem=problem, kernel=kernel):
            given, options = problem.shards(ring.rank), problem.options(ring.rank)
            options |= {"ring": ring, "backend": kernel}
            _, saved = rc.attention(*given[:3], return_residuals=True, **options)
            residuals = [saved.out, *saved.stats]
            for x in residuals:
                x.flags.writeable = False
            before = copies(residuals)
            grads = rc.attention_backward(*given[:3], saved.out, saved.stats, given.dout, **options)
            assert copies(residuals) == before
            assert all(np.all(np.isfinite(x)) for x in grads)

        rc.run_ranks(ranks, on_rank, timeout=30.0)


@pytest.mark.parametrize("ranks", [1, 3])
def test_line_08_results_share_no_memory_with_inputs_or_each_other(ranks):
    for turn, (side, way) in enumerate(CHOICES):
        layout = rc.Layout.contiguous(length=12, ranks=ranks)
        problem = Problem(xp=np, q_layout=layout, heads=(2, 2), side=side, way=way, dtype="float64")
        kernel = kernels("numpy")[turn % 3]()

        def on_rank(ring, problem=problem, kernel=kernel):
            given = problem.shards(ring.rank)
            (out, lse), pullback = rc.attention_vjp(
                *given[:3], ring=ring, return_lse=True, backend=kernel, **problem.options(ring.rank)
            )
            return given, [out, lse, *pullback(given.dout, given.dlse)]

        done = rc.run_ranks(ranks, on_rank, timeout=30.0)
        inputs = [x for given, _ in done for x in given]
        results = [x for _, made in done for x in made]
        for i, x in enumerate(results):
            assert x.flags.writeable
            assert not any(np.shares_memory(x, y) for y in [*inputs, *results[:i]])


def test_line_08_masks_keep_no_reference_to_the_lengths_that_made_them():
    lengths = np.array([2, 3])
    mask = rc.documents(lengths)
    text = repr(mask)
    lengths[...] = 0
    assert repr(mask) == text


@pytest.mark.parametrize("name", ["scatter", "gather", "allreduce", "reshard"])
def test_line_08_collectives_take_read_only_arrays_and_change_nothing(name):
    old, new = rc.Layout.zigzag(length=11, ranks=3), rc.Layout.from_lengths([0, 9, 2])

    def on_rank(ring):
        x = np.arange(22.0).reshape(11, 2)
        x = x if name == "scatter" else old.shard(x, ring.rank)
        x.flags.writeable = False
        before = x.tobytes()
        match name:
            case "scatter":
                ring.scatter(x if ring.rank == 1 else None, old, root=1)
            case "gather":
                ring.gather(x, old)
            case "allreduce":
                ring.allreduce(np.broadcast_to(np.float64(ring.rank), (3, 2)))
            case "reshard":
                assert np.array_equal(rc.reshard(x, ring, old, new)[:, 0] / 2, new.positions(ring.rank))
        assert x.tobytes() == before

    rc.run_ranks(3, on_rank, timeout=20.0)
