"""The NumPy kernels, plain and compiled: against attention in extended precision, and in what they count."""

from __future__ import annotations

import importlib
import itertools
import math
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ringcore_numpy import NumpyBackend, backend
from threadpoolctl import threadpool_limits

import ringcore as rc
from ringcore.layout import Layout
from ringcore.meter import Meter
from ringcore.partial import finish
from ringcore.protocols import ArraySpec, Backend, Stats
from ringcore.testing.drawn_mask import And, Call, DrawnMask, Not, Or
from tests.backends.both import inputs, step_of
from tests.core.kernels import Case, cases, check, check_only_what_is_asked_for, same_bits, solve
from tests.libraries import LIBRARIES
from tests.profiles import examples

NUMPY, READ_ONLY = LIBRARIES["numpy"](), LIBRARIES["numpy-readonly"]()
WRT = ("q", "k", "v")
TILES = [(3, 4), (1, 1), (5, 2), (2, 7), (512, 512)]


@settings(max_examples=examples(150))
@given(case=cases(), tile=st.sampled_from(TILES))
def test_forward_and_backward_are_exact_in_tiles_of_any_shape(
    compiled: bool, case: Case, tile: tuple[int, int]
) -> None:
    check(case, solve(case, NumpyBackend(tile, compiled), NUMPY))


@settings(max_examples=examples(150))
@given(case=cases(poison=True), tile=st.sampled_from(TILES))
def test_a_nan_reaches_the_rows_that_see_it_and_no_others(
    compiled: bool, case: Case, tile: tuple[int, int]
) -> None:
    check(case, solve(case, NumpyBackend(tile, compiled), NUMPY))


@st.composite
def cases_with_gaps(draw: st.DrawFn) -> Case:
    """Two stretches of keys are cut out of any mask: most rows see several intervals."""
    case = draw(cases(poison=draw(st.booleans())))
    tree = case.mask.tree or Call("full")
    for _ in range(2):
        begin = draw(st.integers(0, max(1, case.k_layout.length - 2)))
        tree = And(tree, Not(Call("keys", (begin, begin + draw(st.integers(1, 4))))))
    return replace(case, mask=DrawnMask(tree))


@settings(max_examples=examples(100))
@given(case=cases_with_gaps(), tile=st.sampled_from(TILES))
def test_rows_that_see_several_intervals(compiled: bool, case: Case, tile: tuple[int, int]) -> None:
    check(case, solve(case, NumpyBackend(tile, compiled), NUMPY))


@settings(max_examples=examples(60))
@given(case=cases(dtypes=("float16", "bfloat16")), tile=st.sampled_from(TILES))
def test_sixteen_bit_inputs_accumulate_in_float32(compiled: bool, case: Case, tile: tuple[int, int]) -> None:
    check(case, solve(case, NumpyBackend(tile, compiled), NUMPY))


@settings(max_examples=examples(60))
@given(case=cases(), tile=st.sampled_from(TILES))
def test_read_only_inputs_give_the_same_bits(compiled: bool, case: Case, tile: tuple[int, int]) -> None:
    assert same_bits(
        solve(case, NumpyBackend(tile, compiled), READ_ONLY), solve(case, NumpyBackend(tile, compiled), NUMPY)
    )


# ---------------------------------------------------------------------- threads

BIG = Case(
    Layout.contiguous(length=200, ranks=1), Layout.zigzag(length=400, ranks=2),
    DrawnMask(Call("causal", (99,))), D=48, E=48,
)  # fmt: skip


class Watched(Meter):
    """Which threads kernels have run on."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[threading.Thread] = set()

    def add(self, **counted: int) -> None:
        self.threads.add(threading.current_thread())
        super().add(**counted)


@pytest.mark.parametrize("heads", [(4, 2), (2, 1), (1, 1)])
def test_the_number_of_threads_changes_no_bit(compiled: bool, heads: tuple[int, int]) -> None:
    """Whether each thread has a head of its own, or the tiles of one head are dealt out in waves."""
    case, kernels = replace(BIG, H=heads[0], G=heads[1]), NumpyBackend((64, 32), compiled)
    one = solve(case, kernels, NUMPY)
    if heads == (2, 1):
        check(case, one)
    for threads in (1, 2, 5, 5):
        meter = Watched()
        with threadpool_limits(limits=threads, user_api="blas"):
            assert same_bits(solve(case, kernels, NUMPY, meter), one)
        assert (len(meter.threads) > 1) == (threads > 1)


@pytest.mark.parametrize("waves", [1, 2, 3, 5])
def test_however_many_waves_meet_all_pairs_of_tiles(
    compiled: bool, waves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """9 tiles of queries, 6 of the keys of a rank; the kernels ask for as many waves as suit the machine."""
    where = importlib.import_module(f"ringcore_numpy.{'compiled.attend' if compiled else 'plain.backward'}")
    monkeypatch.setattr(where, "waves_of", lambda q_tiles, k_tiles, heads: min(waves, q_tiles, k_tiles))
    case = Case(
        Layout.contiguous(length=26, ranks=1), Layout.contiguous(length=34, ranks=2),
        DrawnMask(Or(Call("causal", (8,)), Call("window", (2, 20)))),
    )  # fmt: skip
    check(case, solve(case, NumpyBackend((6 if compiled else 3, 3), compiled), NUMPY))


# ---------------------------------------------------------------------- the rest


def tiles_of(seen: np.ndarray, R: int, tile: tuple[int, int], compiled: bool) -> list[int]:
    """Scores in each tile that is computed, for a key head with R query heads, from who sees whom (L_q, L_k).

    The plain kernels cut each query head for itself, and leave out tiles that nobody sees. The compiled ones
    lay the R heads upon each other, cut evenly, to 64 numbers, and begin and end a tile with a row that
    sees something.
    """
    (L_q, L_k), (height, width) = seen.shape, tile
    if compiled and seen.size:
        height, width = (
            min(most, math.ceil(math.ceil(L / math.ceil(L / most)) / 64) * 64)
            for L, most in ((L_q, max(1, height // R)), (L_k, width))
        )
    found = []
    for q0, k0 in itertools.product(range(0, L_q, height), range(0, L_k, width)):
        block = seen[q0 : q0 + height, k0 : k0 + width]
        rows = np.flatnonzero(block.any(axis=1))
        if rows.size:
            used = rows[-1] - rows[0] + 1 if compiled else block.shape[0]
            found += [R * used * block.shape[1]] if compiled else R * [block.size]
    return found


@settings(max_examples=examples(100))
@given(
    case=st.one_of(cases().filter(lambda case: case.mask.dense is None), cases_with_gaps()),
    tile=st.sampled_from(TILES),
)
def test_meter_counts_the_tiles_that_were_computed(compiled: bool, case: Case, tile: tuple[int, int]) -> None:
    meter = Meter()
    solve(case, NumpyBackend(tile, compiled), NUMPY, meter)
    L_q, S_k, R = case.q_layout.count(0), case.k_layout.length, case.H // case.G
    key_heads = math.prod(case.batch) * case.G
    seen = np.broadcast_to(case.table(), (*case.lead, L_q, S_k)).reshape(key_heads, R, L_q, S_k)[:, 0]
    scores = [
        n
        for head in seen
        for rank in (0, 1)
        for n in tiles_of(head[:, case.k_layout.positions(rank)], R, tile, compiled)
    ]
    assert meter.tiles == 2 * len(scores), "forward and backward"
    assert meter.scores == 2 * sum(scores)
    forward, backward = case.D + case.E, 3 * case.D + 2 * case.E
    assert meter.flops == 2 * sum(scores) * (forward + backward)


def test_a_window_costs_what_it_shows(compiled: bool) -> None:
    """A window of 3 over 12 tokens, in tiles of 4 x 4: the diagonal, and what lies to its left."""
    meter, q = Meter(), inputs(0, np.float32, (2, 4, 12, 3))
    step, kernels = replace(step_of(12, rc.window(3, 0)), meter=meter), NumpyBackend((4, 4), compiled)
    kernels.attend(q, q, q, step, None)
    off_diagonal = 3 * 4 if compiled else 4 * 4  # the last of four rows does not look back so far
    assert (meter.tiles, meter.scores) == (5 * 8, (3 * 4 * 4 + 2 * off_diagonal) * 8)


def test_only_the_gradients_asked_for_are_computed(compiled: bool) -> None:
    check_only_what_is_asked_for(NumpyBackend((4, 3), compiled))


@pytest.mark.parametrize("other", [3e38, np.nan, np.inf])
@pytest.mark.parametrize("scale", [10.0, -10.0])
def test_a_scale_that_overflows_with_q_alone_does_not_overflow_the_scores(
    compiled: bool, scale: float, other: float
) -> None:
    """q times the scale is infinite, the scores are not: these are scaled, whatever another row holds."""
    q, k, v = (np.full((1, 2, 1), x, np.float32) for x in (3e38, 1e-38, 1.0))
    q[0, 1] = other
    step, kernels = replace(step_of(2, rc.full()), scale=scale), NumpyBackend((4, 4), compiled)
    partial = kernels.attend(q, k, v, step, None)
    assert partial.m[0, 0] == pytest.approx(3 * scale, rel=1e-6) and partial.l[0, 0] == 2
    for name, size in (("q", 1.0), ("k", 1e-6)):
        dout, delta = np.full((1, 2, 1), size, np.float32), np.full((1, 2), size / 2, np.float32)
        grads = kernels.attend_backward(q, k, v, None, dout, Stats(*partial[1:]), delta, step, (name,), {})
        ds = 0.5 * (size - size / 2)  # of each of two pairs
        if name == "q":
            assert grads["q"][0, 0] == pytest.approx(2 * scale * 1e-38 * ds, rel=1e-5, abs=0)
        elif other == 3e38:
            assert grads["k"][0, :, 0] == pytest.approx(2 * scale * 3e38 * ds, rel=1e-5)


@pytest.mark.parametrize("scale", [0.0, -0.0, -2.5, 8.0])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_any_scale(compiled: bool, dtype: str, scale: float) -> None:
    case = Case(
        Layout.contiguous(length=9, ranks=1), Layout.contiguous(length=10, ranks=2),
        DrawnMask(Call("window", (3, 4))), (2,), 6, 2, 3, 5, dtype, scale,
    )  # fmt: skip
    check(case, solve(case, NumpyBackend((6, 3), compiled), NUMPY))


@pytest.mark.parametrize("ahead", [3, 5000])
def test_what_rounding_took_is_rescaled_with_the_sums(compiled: bool, ahead: int) -> None:
    """A late key with a large score makes little of the sums before it, and of their compensation."""
    S = 16_384
    q, k = np.ones((1, 1, 1), np.float32), np.full((1, S, 1), -0.3, np.float32)
    v = np.full((1, S, 1), 1 / 3, np.float32)
    k[0, -ahead:] = np.linspace(9, 10, ahead)[:, None]
    step = replace(step_of(S, rc.full()), lo=np.zeros((1, 1), int), hi=np.full((1, 1), S), scale=1.0)
    acc, m, l = NumpyBackend((64, 128), compiled).attend(q, k, v, step, None)  # noqa: E741
    exact = np.exp(k[0, :, 0].astype(np.float64) - 10).sum()
    assert m[0, 0] == 10
    assert abs(l[0, 0] / exact - 1) < 8 * 2**-24
    assert abs(acc[0, 0, 0] / (exact * float(v[0, 0, 0])) - 1) < (8 + 128 / 4) * 2**-24


@pytest.mark.parametrize("R", range(1, 9))
def test_query_heads_of_a_group(compiled: bool, R: int) -> None:
    """Also more of them than a tile has rows; padding differs between batch rows."""
    for L_q, L_k, tile in ((1, 1, (4, 4)), (5, 3, (64, 64)), (13, 11, (4, 4)), (40, 3, (8, 1))):
        case = Case(
            Layout.contiguous(length=L_q, ranks=1), Layout.contiguous(length=2 * L_k, ranks=2),
            DrawnMask(And(Call("causal", (L_k,)), Call("padding", ((2 * L_k - 1, 1),)))), (2,), 2 * R, 2,
        )  # fmt: skip
        check(case, solve(case, NumpyBackend(tile, compiled), NUMPY))


def test_it_is_what_numpy_arrays_get() -> None:
    assert rc.registry.backend_of(np.ones(1)) is backend
    assert isinstance(backend, Backend) and backend.name == "numpy"
    wire = backend.pack([np.arange(3.0), np.ones((2, 2), ml_dtypes.bfloat16)], "host")
    there = backend.blank([ArraySpec((3,), np.float64), ArraySpec((2, 2), ml_dtypes.bfloat16)], "host")
    there.buffer[:] = wire.buffer
    a, b = backend.unpack(there, np.ones(1))
    assert a.tolist() == [0, 1, 2] and b.dtype == ml_dtypes.bfloat16 and (b == 1).all()


def test_the_check_can_fail() -> None:
    case = replace(BIG, q_layout=Layout.contiguous(length=7, ranks=1))
    wrong = solve(replace(case, mask=DrawnMask(Call("causal", (98,)))), backend, NUMPY)
    with pytest.raises(AssertionError, match="must be within"):
        check(case, wrong)


def test_a_key_of_inf_that_weighs_nothing_spoils_no_gradient_of_others(compiled: bool) -> None:
    """Its scores are -inf: forward is finite, and so is what the other keys and values get."""
    q, v, dout = (
        -np.ones((1, 6, 2), np.float32),
        inputs(1, np.float32, (1, 6, 2)),
        inputs(2, np.float32, (1, 6, 2)),
    )
    k = inputs(3, np.float32, (1, 6, 2))
    k[0, 4] = np.inf
    step, kernels = step_of(6, rc.full()), NumpyBackend((4, 4), compiled)
    partial = kernels.attend(q, k, v, step, None)
    out, _ = finish(np, partial)
    assert np.isfinite(out).all()
    stats, delta = Stats(partial.m, partial.l), (out * dout).sum(-1)
    grads = kernels.attend_backward(q, k, v, out, dout, stats, delta, step, ("k", "v"), {})
    assert np.isfinite(grads["k"]).all() and np.isfinite(grads["v"]).all() and (grads["v"][0, 4] == 0).all()
