"""The assertions pass what is right and catch what is wrong, and say where."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import ringcore as rc
from ringcore.testing import (
    Call,
    DenseBits,
    DrawnMask,
    Poison,
    Problem,
    Results,
    assemble,
    assert_no_growth,
    assert_within_contract,
    check_attention,
    check_no_growth,
    from_numpy,
    nrms,
    oracle,
    solve,
)

U32 = 2.0**-24
ONE = np.ones((2, 3))

# ------------------------------------------------------------------ assert_within_contract


def test_an_error_is_measured_in_units_of_u_cond():
    got = ONE.copy()
    got[1, 2] += 5 * U32 * 4 + U32  # half an ulp of float32 at 1 is u
    assert assert_within_contract(got, ONE, 4 * ONE, "float32") == pytest.approx(5)
    assert assert_within_contract(ONE, ONE, 0 * ONE, "float32") == 0


@pytest.mark.parametrize(
    ("dtype", "u", "half_ulp"),
    [
        ("float64", 2.0**-53, 2.0**-53),
        ("float32", U32, U32),
        ("float16", U32, 2.0**-11),
        ("bfloat16", U32, 2.0**-8),
    ],
)
def test_the_bound_is_8_u_of_the_accumulation_dtype_and_half_an_ulp_of_the_output(dtype, u, half_ulp):
    bound = 8 * u * 3 + half_ulp
    assert_within_contract(ONE + 0.99 * bound, ONE, 3 * ONE, dtype)
    with pytest.raises(AssertionError, match="must be within 8 u cond"):
        assert_within_contract(ONE + 1.02 * bound + 2 * 2.0**-53, ONE, 3 * ONE, dtype)


def test_u_and_factor_can_be_given():
    got = ONE + 6 * 2.0**-8
    assert_within_contract(got, ONE, ONE, "bfloat16", u=2.0**-8)
    with pytest.raises(AssertionError):
        assert_within_contract(got, ONE, ONE, "bfloat16", u=2.0**-8, factor=4)


def test_the_message_names_the_worst_element():
    got = ONE + np.array([[0, 0, 1e-3], [0, 0.5, 0]])
    with pytest.raises(AssertionError) as caught:
        assert_within_contract(got, ONE, ONE, "float32", name="dk")
    message = str(caught.value)
    assert message.startswith(
        "dk must be within 8 u cond + half an ulp of float32 of the reference, u = 2^-24."
    )
    assert "2 of 6 elements are not. The worst is at index (1, 1): got 1.5, want 1.0" in message
    assert re.search(
        r"error 0\.5 = 8\.39e\+06 u cond beyond half an ulp; cond = 1, bound = 5\.36e-07", message
    )


def test_what_has_condition_0_must_be_exact():
    zero = np.zeros(2)
    assert_within_contract(zero, zero, zero, "float32")
    with pytest.raises(AssertionError, match="inf u cond"):
        assert_within_contract(np.array([0, 1e-30]), zero, zero, "float32")


@pytest.mark.parametrize("same", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_be_so(same):
    one = np.array([1.0, same])
    assert_within_contract(one, one, np.ones(2), "float64")
    for other in (1.0, np.nan, np.inf, -np.inf):
        if other == same or (np.isnan(other) and np.isnan(same)):
            continue
        for got, want in [(other, same), (same, other)]:
            with pytest.raises(AssertionError, match="1 of 1 elements"):
                assert_within_contract(np.array([got]), np.array([want]), np.ones(1), "float64")


def test_a_condition_of_nan_excuses_nothing():
    with pytest.raises(AssertionError):
        assert_within_contract(ONE + 1, ONE, ONE * np.nan, "float64")


def test_what_the_dtype_cannot_hold_may_be_infinite():
    want = np.array([7e4, -7e4])
    assert_within_contract(np.array([np.inf, -np.inf]), want, np.ones(2), "float16")
    with pytest.raises(AssertionError):
        assert_within_contract(np.array([-np.inf, -np.inf]), want, np.ones(2), "float16")
    with pytest.raises(AssertionError):
        assert_within_contract(np.array([np.inf]), np.array([6e4]), np.ones(1), "float16")


def test_elements_can_be_left_out():
    got = np.array([[np.nan, 1.0]])
    assert_within_contract(got, np.ones((1, 2)), np.ones((1, 2)), "float64", where=np.array([[False, True]]))


def test_shapes_must_be_equal_and_may_be_empty():
    with pytest.raises(AssertionError, match=r"out must have shape \(2, 3\). Got \(3, 2\)"):
        assert_within_contract(ONE.T, ONE, ONE, "float64", name="out")
    empty = np.zeros((0, 3))
    assert assert_within_contract(empty, empty, empty, "float64") == 0


def test_arrays_of_every_library_are_compared(xp):
    x = xp.asarray(np.ones(2, np.float32))
    assert_within_contract(x, np.ones(2), np.ones(2), x.dtype)
    with pytest.raises(AssertionError):
        assert_within_contract(x, np.full(2, 1.1), np.ones(2), x.dtype)


# ------------------------------------------------------------------ growth


def test_nrms():
    assert nrms([2.0, 0.0], 0.5, [2.0, 0.0]) == 2  # the second is exact and of condition 0
    assert nrms([0.0, 0.0], 0.5, [0.0, 0.0]) == 0
    assert nrms([1.0], 0.5, [0.0]) == np.inf
    assert nrms([], 0.5, []) == 0


def test_no_growth():
    assert_no_growth(1.51, 1.0)
    assert_no_growth(0.0, 0.0)
    for ring in (1.53, np.nan, np.inf):
        with pytest.raises(AssertionError, match=r"dk: the error must not grow .* 1\.52\. Got .*, dense 1"):
            assert_no_growth(ring, 1.0, name="dk")


PINNED = Problem(
    xp=np,
    q_layout=rc.Layout.zigzag(length=96, ranks=4),
    mask=DrawnMask(Call("causal")),
    dtype="float32",
    heads=(2, 1),
    D=16,
    E=16,
)


def test_a_ring_does_not_err_more_than_dense_attention():
    found = check_no_growth(PINNED, solve(PINNED))
    assert set(found) == set(Results._fields)
    assert all(0 < ring < 1.5 * dense + 0.02 for ring, dense in found.values())


def cut_to_shards(problem, whole):
    """Results of each rank, rounded once to the dtypes that they have."""
    cut = []
    for rank in range(problem.ranks):
        parts = {}
        for name, values in whole._asdict().items():
            layout = problem.k_layout if name in ("dk", "dv") else problem.q_layout
            part = layout.shard(values, rank, axis=-1 if name == "lse" else -2)
            parts[name] = from_numpy(np, part, "float32" if name == "lse" else problem.dtype)
        cut.append(Results(**parts))
    return cut


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_of_16_bits_are_compared_with_dense_ones_of_16_bits(dtype):
    """The right answer, rounded once, errs by half an ulp of 16 bits: as much as dense attention does."""
    problem = replace(PINNED, dtype=dtype)
    found = check_no_growth(problem, cut_to_shards(problem, problem.reference))
    assert found["out"][0] == pytest.approx(found["out"][1], rel=0.1)
    check_no_growth(problem, solve(problem))
    worse = problem.reference._replace(out=problem.reference.out * (1 + 2.0**-6))
    with pytest.raises(AssertionError, match=r"out of Problem.*the error must not grow"):
        check_no_growth(problem, cut_to_shards(problem, worse))


@pytest.mark.parametrize("name", Results._fields)
def test_three_times_the_rounding_error_of_dense_attention_is_growth(name):
    """Within the first bound, and caught by this one."""
    want = getattr(PINNED.reference, name)
    shards = solve(PINNED)
    worse = want + 3 * (getattr(PINNED.dense, name) - want)
    layout = PINNED.k_layout if name in ("dk", "dv") else PINNED.q_layout
    axis = -1 if name == "lse" else -2
    cut = [layout.shard(worse.astype(np.float32), rank, axis=axis) for rank in range(4)]
    results = [shard._replace(**{name: part}) for shard, part in zip(shards, cut, strict=True)]
    check_attention(PINNED, results)
    with pytest.raises(AssertionError, match=f"{name} of Problem.*the error must not grow"):
        check_no_growth(PINNED, results)


# ------------------------------------------------------------------ check_attention

SMALL = Problem(
    xp=np,
    q_layout=rc.Layout.striped(length=7, ranks=3),
    k_layout=rc.Layout.from_lengths([0, 5, 4]),
    mask=DrawnMask(Call("causal", (-1,))),
    heads=(4, 2),
    batch=(2,),
    E=3,
)


def test_a_right_answer_passes_and_errors_are_returned():
    worst = check_attention(SMALL, solve(SMALL))
    assert set(worst) == {"out", "lse", "dq", "dk", "dv"}
    assert all(0 <= units < 8 for units in worst.values())


@pytest.mark.parametrize("check", [check_attention, check_no_growth, assemble])
def test_results_may_not_all_be_left_out(check):
    with pytest.raises(AssertionError, match="results must hold at least one of out, lse, dq, dk, dv"):
        check(SMALL, [Results()] * 3)


def test_results_may_be_left_out():
    results = [Results(out=r.out, dv=r.dv) for r in solve(SMALL)]
    assert set(check_attention(SMALL, results)) == {"out", "dv"}


def changed(name, change, rank=1):
    results = solve(SMALL)
    results[rank] = results[rank]._replace(**{name: change(getattr(results[rank], name))})
    return results


@pytest.mark.parametrize("name", Results._fields)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x * (1 + 1e-13), "must be within 8 u cond"),
        (lambda x: np.flip(x, axis=2), "must be within 8 u cond"),
        (lambda x: x.astype(np.float32), "on rank 1 must have dtype float64. Got float32"),
        (lambda x: x[:, :, 1:], "on rank 1 must have shape"),
        (lambda x: np.where(np.isfinite(x), np.nan, x), "must be within 8 u cond"),
        (lambda x: None, r"must be there on every rank or on none. Missing on rank \[1\]"),
    ],
)
def test_a_wrong_answer_of_one_rank_is_caught(name, change, message):
    with pytest.raises(AssertionError, match=rf"(?s){name}.*{message}.*In Problem\(xp=numpy"):
        check_attention(SMALL, changed(name, change))


def test_gradients_of_too_few_ranks_are_caught():
    """dK of a rank that has heard of its own queries only: shapes, dtypes and forward pass are right."""
    own = oracle.attention_vjp(
        *(SMALL.values[name] for name in ("q", "k", "v", "dout", "dlse")),
        SMALL.visible & np.isin(np.arange(7), SMALL.q_layout.positions(1))[:, None],
    )
    results = changed("dk", lambda _: SMALL.k_layout.shard(own[1], 1))
    with pytest.raises(AssertionError, match="dk must be within"):
        check_attention(SMALL, results)


def test_as_many_results_as_ranks():
    with pytest.raises(AssertionError, match=r"results must be one for each of 3 ranks\. Got 2"):
        check_attention(SMALL, solve(SMALL)[:2])


def test_rows_that_a_nan_may_reach_are_not_compared_and_all_others_are():
    problem = replace(SMALL, poison=Poison("k", 2, np.nan))
    results = solve(problem)
    assert check_attention(problem, results)["out"] < 8
    reach = problem.may_be_nonfinite.out
    assert reach.any()
    assert not reach.all()
    leaked = [r._replace(out=np.full_like(r.out, np.nan)) for r in results]
    with pytest.raises(AssertionError, match="out must be within"):
        check_attention(problem, leaked)


@pytest.mark.parametrize("name", Results._fields)
def test_a_nan_that_was_swallowed_is_caught(name):
    """Finite numbers where the NaN must arrive, in one result at a time; all other rows are right."""
    problem = replace(SMALL, poison=Poison("k", 1, np.nan))
    results = solve(problem)
    check_attention(problem, results)
    clean = [r._replace(**{name: np.nan_to_num(getattr(r, name), neginf=-np.inf)}) for r in results]
    with pytest.raises(AssertionError, match=f"{name} must be NaN or inf where .* reaches it") as caught:
        check_attention(problem, clean)
    assert "such elements are finite. The first is at index (0, 0, " in str(caught.value)
    assert "In Problem(xp=numpy" in str(caught.value)


def test_assembling_is_independent_of_unshard():
    problem = replace(SMALL, seq_axis=-3, mask=DrawnMask(None, DenseBits((4,), 1)))
    whole = assemble(problem, solve(problem))
    shards = [np.moveaxis(r.out, -3, -2) for r in solve(problem)]
    np.testing.assert_array_equal(whole.out, problem.q_layout.unshard(shards))
