"""Cases 1 to 12: wrong numbers and wrong gradients that users of other libraries have met."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.dtypes import dtype_name
from ringcore.partial import Partial, finish, identity, merge
from ringcore.testing import (
    And,
    Call,
    DrawnMask,
    Problem,
    assemble,
    assert_within_contract,
    check_attention,
    oracle,
    solve,
)
from tests.contract.problems import (
    CHOICES,
    Changed,
    assert_same_error,
    in_order,
    kernels,
    layouts_of,
    on_every_rank,
    variant,
)
from tests.libraries import LIBRARIES
from tests.profiles import examples

CAUSAL = DrawnMask(Call("causal"))
GRADIENTS = ("dq", "dk", "dv")


def solved(problem, kernel=None):
    """Whole results in global order, float64, after a check of every element."""
    results = solve(problem, backend=kernel)
    check_attention(problem, results)
    return assemble(problem, results)


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


# ------------------------------------------------------------------ 1


def test_case_01_the_backward_error_of_bfloat16_does_not_grow_with_the_ring():
    """S = 1024, D = 128: flat in P, and at most 1.5 times that of dense attention."""
    base = Problem(
        xp=np, q_layout=rc.Layout.contiguous(length=1024, ranks=1), mask=CAUSAL, dtype="bfloat16", D=128,
        E=128, seed=1, with_dlse=False,
    )  # fmt: skip
    want = base.reference
    dense = {name: rms(in_bfloat16(getattr(base.dense, name)) - getattr(want, name)) for name in GRADIENTS}
    found = {}
    for turn, ranks in enumerate((2, 4, 8, 16)):
        layout = rc.Layout.zigzag(length=1024, ranks=ranks)
        side, way = CHOICES[turn]
        problem = variant(base, q_layout=layout, k_layout=layout, side=side, way=way)
        got = assemble(problem, solve(problem))
        found[ranks] = {name: rms(getattr(got, name) - getattr(want, name)) for name in GRADIENTS}
    for name in GRADIENTS:
        errors = [error[name] for error in found.values()]
        assert max(errors) <= 1.5 * dense[name]
        assert max(errors) <= 1.05 * min(errors)


def in_bfloat16(x):
    import ml_dtypes

    return np.asarray(x).astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


# ------------------------------------------------------------------ 2


@pytest.mark.parametrize("kernel", kernels("numpy"))
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_case_02_partial_results_that_are_far_apart(ranks, dtype, kernel):
    """Scores of one rank's keys are hundreds above or below another's: exp of the difference overflows."""

    def apart(values):
        step = np.arange(values["k"].shape[-2]) // 4 % 3  # -200, 0, 200, in blocks of four keys
        values["k"][...] *= 0.1
        values["k"][..., 0] += 200.0 * (step - 1)
        values["q"][..., 0] = np.where(np.arange(values["q"].shape[-2]) % 2, 1.0, -1.0)

    for turn, layout in enumerate(layouts_of(24, ranks)[:3]):
        side, way = CHOICES[(ranks + turn) % 4]
        problem = Changed(
            xp=np, q_layout=layout, dtype=dtype, D=4, E=3, scale=1.0, side=side, way=way, change=apart
        )
        shards = [problem.values["k"][0, p, 0] for p in map(layout.positions, range(ranks))]
        assert max(map(np.max, shards)) - min(map(np.min, shards)) > 300
        got = solved(problem, kernel)
        assert all(np.all(np.isfinite(x)) for x in got)


def test_case_02_logits_times_100_on_two_ranks():
    for side, way in CHOICES:
        layout = rc.Layout.contiguous(length=64, ranks=2)
        problem = Problem(xp=np, q_layout=layout, dtype="float32", D=8, spread=100.0, side=side, way=way)
        assert all(np.all(np.isfinite(x)) for x in solved(problem))


def test_case_02_the_merge_itself():
    one = np.ones((1, 1))
    low, high = Partial(one[..., None], -1e4 * one, one), Partial(3 * one[..., None], 1e4 * one, one)
    for a, b in ((low, high), (high, low)):
        out, lse = finish(np, merge(np, a, b))
        assert out.item() == 3
        assert lse.item() == 1e4


# ------------------------------------------------------------------ 3


@pytest.mark.parametrize("ranks", range(2, 9))
def test_case_03_dk_and_dv_of_every_rank_depend_on_the_queries_of_every_rank(ranks):
    side, way = CHOICES[ranks % 4]
    layout = layouts_of(3 * ranks, ranks)[ranks % 3]
    base = Problem(xp=np, q_layout=layout, D=3, E=2, side=side, way=way, seed=ranks)
    whole = solved(base)
    for source in range(ranks):
        where = layout.positions(source)[0]

        def nudge(values, where=where):
            values["q"][..., where, :] += 0.5

        moved = solved(variant(base, change=nudge))
        assert np.all(np.any(moved.dk != whole.dk, axis=-1))
        assert np.all(np.any(moved.dv != whole.dv, axis=-1))


@pytest.mark.parametrize("ranks", [2, 4])
def test_case_03_dq_of_every_rank_depends_on_the_keys_of_every_rank(ranks):
    layout = rc.Layout.contiguous(length=2 * ranks, ranks=ranks)
    for side, way in CHOICES:
        base = Problem(xp=np, q_layout=layout, D=3, E=2, side=side, way=way)
        whole = solved(base)
        for name in ("k", "v"):
            for source in range(ranks):

                def nudge(values, name=name, source=source):
                    values[name][..., 2 * source, :] += 0.5

                moved = solved(variant(base, change=nudge))
                assert np.all(np.any(moved.dq != whole.dq, axis=-1))


# ------------------------------------------------------------------ 4


UNEQUAL = {
    "causal": Call("causal"),
    "documents": Call("documents", ((3, 17, 4),)),
    "window": Call("window", (5, 2)),
    "causal from 6 on": And(Call("causal"), Call("keys", (6, 24))),
}


@pytest.mark.parametrize("name", UNEQUAL)
@pytest.mark.parametrize("ranks", range(2, 9))
def test_case_04_delta_is_that_of_the_whole_row(ranks, name):
    for turn, layout in enumerate(layouts_of(24, ranks)[:2]):
        side, way = CHOICES[(ranks + turn) % 4]
        problem = Problem(
            xp=np, q_layout=layout, mask=DrawnMask(UNEQUAL[name]), D=4, E=4, side=side, way=way, seed=turn
        )
        solved(problem, kernels("numpy")[turn % 2])


def test_case_04_delta_of_a_block_would_be_noticed():
    """What a library computes that takes delta from the block at hand: far off, and beyond the bound."""
    problem = Problem(
        xp=np, q_layout=rc.Layout.contiguous(length=24, ranks=2), mask=CAUSAL, D=4, E=4, with_dlse=False
    )
    x = problem.values
    wrong = np.zeros(problem.shape_of("dq"))
    _, _, p = oracle.attention(x["q"], x["k"], x["v"], oracle.causal())
    for rank in range(2):
        keys = problem.k_layout.positions(rank)
        out = oracle.attention(x["q"], x["k"][:, keys], x["v"][:, keys], problem.visible[..., keys])[0]
        delta = np.sum(x["dout"] * out, axis=-1, keepdims=True)
        ds = p[..., keys] * (x["dout"] @ np.swapaxes(x["v"][:, keys], -1, -2) - delta)
        wrong += ds @ x["k"][:, keys] / 2
    want = problem.reference.dq
    assert rms(wrong - want) > 0.05 * rms(want)
    with pytest.raises(AssertionError, match="must be within"):
        assert_within_contract(wrong, want, problem.conditions.dq, "float32")


# ------------------------------------------------------------------ 5


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("loss", ["sum", "mean"])
def test_case_05_gradients_do_not_scale_with_the_number_of_ranks(ranks, loss):
    """The loss is over the whole sequence: each rank passes the cotangent of its own rows."""
    x = np.random.default_rng(5).standard_normal((3, 2, 14, 4))
    weight = 1.0 if loss == "sum" else 1.0 / x[0].size
    want = oracle.attention_vjp(*x, np.full(x[0].shape, weight), visible=oracle.causal())
    for turn, layout in enumerate(layouts_of(14, ranks)[1:4]):
        side, way = CHOICES[(ranks + turn) % 4]

        def on_rank(ring, layout=layout, side=side, way=way):
            q, k, v = (layout.shard(y, ring.rank) for y in x)
            out, pullback = rc.attention_vjp(
                q, k, v, ring=ring, layout=layout, mask=rc.causal(), side=side, way=way
            )
            return pullback(np.full_like(out, weight))

        shards = rc.run_ranks(ranks, on_rank, timeout=20.0)
        for got, right in zip(map(layout.unshard, zip(*shards, strict=True)), want, strict=True):
            assert np.max(np.abs(got - right)) <= 1e-14


# ------------------------------------------------------------------ 6


@pytest.mark.parametrize("name", ["numpy", "torch", "array-api-strict"])
def test_case_06_a_strided_partial_merges_like_any_other(name):
    library = LIBRARIES[name]()
    xp = library.xp
    rng = np.random.default_rng(6)

    def partial(transposed):
        acc, m, l = (  # noqa: E741
            rng_values if not transposed else np.ascontiguousarray(rng_values.swapaxes(0, 1))
            for rng_values in (a, b, c)
        )
        arrays = [library.asarray(y) for y in (acc, m, l)]
        return Partial(*(xp.moveaxis(y, 0, 1) for y in arrays)) if transposed else Partial(*arrays)

    made = []
    for _ in range(2):
        a, b, c = rng.standard_normal((3, 5, 4)), rng.standard_normal((3, 5)), rng.random((3, 5))
        made.append((partial(False), partial(True)))
    (x, x_strided), (y, y_strided) = made
    want = merge(xp, x, y)
    for got in (merge(xp, x_strided, y), merge(xp, x, y_strided), merge(xp, x_strided, y_strided)):
        for there, here in zip(got, want, strict=True):
            assert np.array_equal(library.numpy(there), library.numpy(here))


def strided(x):
    """The same values, last axis first in memory, every second element."""
    room = np.full((*x.shape[-1:], *x.shape[:-1], 2), np.nan, x.dtype)
    room[..., 0] = np.moveaxis(x, -1, 0)
    return np.moveaxis(room[..., 0], 0, -1)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_case_06_strided_inputs_residuals_and_cotangents(ranks):
    for turn, (side, way) in enumerate(CHOICES):
        layout = layouts_of(13, ranks)[turn % 3]
        problem = Problem(xp=np, q_layout=layout, heads=(4, 2), D=3, E=5, mask=CAUSAL, side=side, way=way)
        kernel = kernels("numpy")[turn % 2]()

        def on_rank(ring, problem=problem, kernel=kernel):
            q, k, v, dout, dlse = problem.shards(ring.rank)
            options = {"ring": ring, "backend": kernel, **problem.options(ring.rank)}
            out, saved = rc.attention(q, k, v, return_residuals=True, **options)
            grads = rc.attention_backward(q, k, v, saved.out, saved.stats, dout, dlse=dlse, **options)
            q, k, v, dout, dlse, kept, m, l = map(  # noqa: E741
                strided, (q, k, v, dout, dlse, saved.out, *saved.stats)
            )
            again, _ = rc.attention(q, k, v, return_residuals=True, **options)
            same = rc.attention_backward(q, k, v, kept, (m, l), dout, dlse=dlse, **options)
            for x, y in zip((out, *grads), (again, *same), strict=True):
                assert np.max(np.abs(x - y), initial=0.0) <= 1e-14

        rc.run_ranks(ranks, on_rank, timeout=20.0)


# ------------------------------------------------------------------ 7


@given(
    owners=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    spread=st.sampled_from([0.1, 1.0, 30.0]),
    through_lse=st.booleans(),
)
@settings(max_examples=examples(100))
def test_case_07_merging_any_split_of_the_keys_gives_the_whole(owners, spread, through_lse):
    """(out, lse) of disjoint sets of keys is a partial too: lse is a natural logarithm everywhere."""
    n, owner = len(owners), np.array(owners)
    rng = np.random.default_rng(n)
    q, k, v = spread * rng.standard_normal((3, 2)), rng.standard_normal((n, 2)), rng.standard_normal((n, 3))
    merged = identity(np, (3, 3), np.float64)
    for part in range(4):
        out, lse = rc.attention(q, k[owner == part], v[owner == part], return_lse=True)
        assert np.allclose(np.exp(lse), np.exp(q @ k[owner == part].T / np.sqrt(2)).sum(-1), rtol=1e-12)
        ones = np.where(lse > -np.inf, 1.0, 0.0)
        piece = Partial(out, lse, ones)
        if not through_lse:
            _, (whole, (m, l)) = rc.attention(  # noqa: E741
                q, k[owner == part], v[owner == part], return_residuals=True
            )
            piece = Partial(whole * l[:, None], m, l)
        merged = merge(np, merged, piece)
    out, lse = finish(np, merged)
    want_out, want_lse, _ = oracle.attention(q, k, v)
    assert np.allclose(out, want_out, rtol=1e-11, atol=1e-13)
    assert np.allclose(lse, want_lse, rtol=1e-13, atol=1e-13)


def test_case_07_lse_is_a_natural_logarithm():
    q, v = np.zeros((1, 2)), np.ones((5, 1))
    for ranks in range(1, 6):
        layout = rc.Layout.contiguous(length=5, ranks=ranks)
        q_layout = rc.Layout.from_lengths([1] + [0] * (ranks - 1))

        def on_rank(ring, layout=layout, q_layout=q_layout):
            k, mine = (layout.shard(x, ring.rank) for x in (np.ones((5, 2)), v))
            return rc.attention(
                q_layout.shard(q, ring.rank), k, mine, ring=ring, layout=q_layout, k_layout=layout,
                return_lse=True,
            )[1]  # fmt: skip

        assert abs(rc.run_ranks(ranks, on_rank, timeout=20.0)[0].item() - np.log(5)) < 1e-15


# ------------------------------------------------------------------ 8, 9


NOT_BUILT = {
    "bias": np.zeros((1, 1)),
    "alibi_slopes": np.ones(1),
    "sinks": np.zeros(1),
    "dropout": 0.1,
    "dropout_p": 0.0,
    "softcap": 30.0,
    "window": (4, 0),
    "window_size": (4, 0),
    "is_causal": True,
    "attn_mask": None,
    "sm_scale": 1.0,
}


@pytest.mark.parametrize("option", NOT_BUILT)
def test_case_08_09_an_option_that_is_not_supported_is_an_error_on_every_rank(option):
    """Also where its value would change nothing: nothing is dropped in silence."""
    x = np.ones((1, 3, 2))
    given = {option: NOT_BUILT[option]}

    def backward(ring):
        out, saved = rc.attention(x, x, x, return_residuals=True)
        return rc.attention_backward(x, x, x, saved.out, saved.stats, out, ring=ring, **given)

    for call in (
        lambda ring: rc.attention(x, x, x, ring=ring, **given),
        lambda ring: rc.attention_vjp(x, x, x, ring=ring, **given),
        backward,
    ):
        assert_same_error(on_every_rank(3, call), TypeError, f"unexpected keyword argument {option!r}")


@pytest.mark.parametrize("name", ["bias", "sinks", "alibi_slopes"])
def test_case_08_a_gradient_that_is_not_supported_is_an_error(name):
    x = np.ones((1, 3, 2))

    def call(ring):
        _, pullback = rc.attention_vjp(x, x, x, ring=ring)
        ring.traffic.messages = 0
        return pullback(x, wrt=("q", name))

    assert_same_error(on_every_rank(2, call), ValueError, "wrt must name", repr(name))


# ------------------------------------------------------------------ 10


@pytest.mark.parametrize("reach", [(5, 5), (5, 0), (0, 5), (5, None), (None, 5), (4, 0)], ids=repr)
@pytest.mark.parametrize("ranks", [1, 4])
def test_case_10_a_window_is_in_global_positions(ranks, reach):
    for turn, layout in enumerate(layouts_of(40, ranks)):
        side, way = CHOICES[(turn + ranks) % 4]
        k_layout = (layout, rc.Layout.zigzag(length=40, ranks=ranks))[turn % 2]
        problem = Problem(
            xp=np, q_layout=layout, k_layout=k_layout, mask=DrawnMask(Call("window", reach)), D=3, side=side,
            way=way, tile=(None, (4, 4))[turn % 2],
        )  # fmt: skip
        solved(problem, kernels("numpy")[turn // 2 % 2])


def test_case_10_a_window_holds_left_plus_1_plus_right_keys():
    """Counted: of equal scores, lse is the logarithm of how many keys a query sees."""
    x = np.zeros((40, 1))
    for layout in layouts_of(40, 4):

        def on_rank(ring, layout=layout):
            mine = layout.shard(x, ring.rank)
            return rc.attention(
                mine, mine, mine, ring=ring, layout=layout, mask=rc.window(5, 2), return_lse=True
            )[1]

        lse = layout.unshard(rc.run_ranks(4, on_rank, timeout=20.0), axis=0)
        i = np.arange(40)
        assert np.round(np.exp(lse)).tolist() == (np.minimum(i, 5) + 1 + np.minimum(39 - i, 2)).tolist()


# ------------------------------------------------------------------ 11


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_case_11_gradients_have_the_dtype_of_their_input(name, dtype):
    library = LIBRARIES[name]()
    for ranks in (1, 2, 5):
        for side, way in CHOICES:
            layout = rc.Layout.from_lengths([5, *[0] * (ranks - 1)])
            problem = Problem(
                xp=library.xp, q_layout=layout, mask=DrawnMask(Call("keys", (0, 3))), dtype=dtype, side=side,
                way=way,
            )  # fmt: skip
            for result in solve(problem):
                assert {dtype_name(x.dtype) for x in (result.dq, result.dk, result.dv)} == {dtype}


# ------------------------------------------------------------------ 12


@pytest.mark.parametrize("ranks", range(2, 9))
def test_case_12_zigzag_gradients_hold_every_ranks_queries(ranks):
    """Cotangents of 1e-3: a test with an absolute tolerance of 1e-2 would see nothing."""

    def small(values):
        values["dout"] *= 1e-3
        values["dlse"] *= 1e-3

    for turn, (side, way) in enumerate(CHOICES):
        layout = rc.Layout.zigzag(length=26, ranks=ranks)
        problem = Changed(
            xp=np, q_layout=layout, mask=CAUSAL, heads=(2, 1), D=8, E=8, side=side, way=way, change=small,
            dtype=("float32", "float64")[turn % 2],
        )  # fmt: skip
        got = solved(problem)
        assert np.max(np.abs(got.dk)) < 1e-2


def test_case_12_gradients_of_a_ranks_own_queries_would_be_noticed():
    layout = rc.Layout.zigzag(length=26, ranks=2)
    problem = Problem(xp=np, q_layout=layout, mask=CAUSAL, D=8, E=8, with_dlse=False, dtype="float32")
    x = problem.values
    own = np.zeros(problem.shape_of("dv"))
    for rank in range(2):
        here = layout.positions(rank)
        visible = problem.visible[:, here]
        dv = oracle.attention_vjp(x["q"][:, here], x["k"], x["v"], x["dout"][:, here], visible=visible)[2]
        own[:, here] = dv[:, here]
    with pytest.raises(AssertionError, match="must be within"):
        assert_within_contract(own, problem.reference.dv, problem.conditions.dv, "float32")


def test_case_12_results_come_back_in_the_callers_order():
    """Each rank's gradient rows are those of the rows that it passed."""
    layout = rc.Layout.zigzag(length=11, ranks=3)
    problem = Problem(xp=np, q_layout=layout, mask=CAUSAL, D=3, E=3)
    whole = in_order(problem, solve(problem, backend=GenericBackend))
    for name in ("out", *GRADIENTS):
        assert np.allclose(getattr(whole, name), getattr(problem.reference, name), rtol=1e-10, atol=1e-12)
