"""Arguments of attention and its backward: one table of what is wrong and what is said about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_strict
import ml_dtypes
import numpy as np
import pytest

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.problem import Options, Problem, prepare
from tests.core.test_agree import TIMEOUT, errors
from tests.libraries import Library

H, L, D = 2, 4, 3
Q = np.ones((H, L, D))


def layout(length: int, ranks: int = 0) -> Callable[[rc.Ring], rc.Layout]:
    """``length`` tokens on each rank."""
    return lambda ring: rc.Layout.contiguous(length=length * ring.size, ranks=ranks or ring.size)


@dataclass(frozen=True)
class Dense:
    """A boolean array of the shape for P ranks."""

    shape: Callable[[int], tuple[int, ...]]

    def __call__(self, ring: rc.Ring) -> rc.Mask:
        return rc.dense(np.ones(self.shape(ring.size), bool))


# What differs from a right call (arrays by position or option by name; a function of the ring), the error.
ATTENTION: list[tuple[dict[Any, Any], type[Exception], str]] = [
    ({0: None}, TypeError, "API standard. Got builtins.NoneType, numpy.ndarray, numpy.ndarray. Convert them"),
    ({1: Q.tolist()}, TypeError, "Got numpy.ndarray, builtins.list, numpy.ndarray."),
    ({0: array_api_strict.asarray(Q)}, TypeError, "arrays of one library"),
    ({2: Q.astype("f4")}, TypeError, "q, k and v must share one dtype. Got float64, float64, float32."),
    (dict.fromkeys(range(3), Q.astype(int)), TypeError, "float64, float32, float16 or bfloat16. Got int64."),
    (dict.fromkeys(range(3), Q.astype(complex)), TypeError, "float16 or bfloat16. Got complex128."),
    (dict.fromkeys(range(3), Q.astype(ml_dtypes.float8_e5m2)), TypeError, "or bfloat16. Got float8_e5m2."),
    (dict.fromkeys(range(3), Q.astype(">f8")), TypeError, "q must be in the machine's byte order. Got"),
    ({2: Q.astype(">f8")}, TypeError, "v must be in the machine's byte order. Got dtype >f8. Convert"),
    ({0: Q[0]}, ValueError, "(L, D), or (*B, H, L, D) with heads. Got shapes (4, 3), (2, 4, 3), (2, 4, 3)."),
    (dict.fromkeys(range(3), Q[0, 0]), ValueError, "the same number of axes"),
    ({0: Q[None], 1: Q[None].repeat(2, 0), 2: Q[None].repeat(2, 0)}, ValueError,
     "equal batch axes; nothing is broadcast. Got q (1, 2, 4, 3), k (2, 2, 4, 3), v (2, 2, 4, 3)."),
    ({2: Q[:1]}, ValueError, "k and v must have the same heads G and length L_k. Got"),
    ({2: Q[:, :3]}, ValueError, "k and v must have the same heads G and length L_k. Got"),
    ({0: Q[[0, 0, 0]]}, ValueError, "H must be a multiple of the key heads G, both >= 1. Got H=3, G=2"),
    ({0: Q[:0]}, ValueError, "Got H=0, G=2"),
    ({1: Q[:0], 2: Q[:0]}, ValueError, "Got H=2, G=0"),
    ({0: Q[..., :2]}, ValueError, "q and k must have the same head dimension D >= 1. Got q (2, 4, 2)"),
    ({0: Q[..., :0], 1: Q[..., :0]}, ValueError, "head dimension D >= 1"),
    ({"seq_axis": 1}, ValueError, "seq_axis must be -2 for (*B, H, L, D) or -3 for (*B, L, H, D). Got 1."),
    ({"seq_axis": None}, ValueError, "Got None."),
    ({"layout": "zigzag"}, TypeError, "layout must be a ringcore.Layout. Got str."),
    ({"layout": 0}, TypeError, "layout must be a ringcore.Layout. Got int."),
    ({"layout": layout(L, ranks=7)}, ValueError, "layout must be for the ranks of the ring. Expected"),
    ({"layout": layout(L + 1)}, ValueError, "q must hold this rank's part of Layout.contiguous(length="),
    ({"layout": layout(L), 1: Q[:, :3], 2: Q[:, :3]}, ValueError,
     "Expected length 4, got 3. Shard with layout.shard(x, ring.rank); where keys are another sequence"),
    ({"k_layout": ""}, TypeError, "k_layout must be a ringcore.Layout. Got str."),
    ({"k_layout": layout(3)}, ValueError, "Expected length 3, got 4. Shard with layout.shard("),
    ({"mask": np.ones((L, L), bool)}, TypeError, "Got ndarray. Wrap a boolean array with ringcore.dense"),
    ({"mask": rc.causal}, TypeError, "mask must be a ringcore mask. Got function."),
    ({"mask": rc.padding([1, 2])}, ValueError, "broadcast to batch and heads (*B, H) = (2,). Got (2, 1)"),
    ({"mask": Dense(lambda P: (3, L, P * L))}, ValueError, "to batch and heads (*B, H) = (2,). Got (3,)"),
    ({"mask": Dense(lambda P: (L + 1, P * L))}, ValueError, "a row per local query and a column per key"),
    ({"mask": Dense(lambda P: (L, P * L + 1))}, ValueError, "Expected (..., 4, "),
    ({"mask": lambda ring: rc.dense(array_api_strict.ones((L, ring.size * L), dtype=array_api_strict.bool))},
     TypeError, "a dense mask must be an array of the inputs' library. Got numpy, array_api_strict"),
    ({"mask": Dense(lambda P: (L, P * L)), "side": "q"}, ValueError, "K and V must travel. Got side='q'."),
    ({"scale": float("nan")}, ValueError, "scale must be a finite number. Got nan."),
    ({"scale": -float("inf")}, ValueError, "scale must be a finite number. Got -inf."),
    ({"scale": "0.5"}, ValueError, "scale must be a finite number. Got '0.5'."),
    ({"scale": True}, ValueError, "scale must be a finite number. Got True."),
    ({"scale": [1.0, 2.0]}, ValueError, "scale must be a finite number. Got [1.0, 2.0]."),
    ({"side": "both"}, ValueError, "side must be 'auto', 'kv' or 'q'. Got 'both'."),
    ({"way": None}, ValueError, "way must be 'auto', 'ring' or 'direct'. Got None."),
    ({"meter": 0}, TypeError, "meter must be a ringcore.Meter. Got int."),
    ({"backend": "numpy"}, TypeError, "object with the methods of ringcore.protocols.Backend. Got str."),
    ({"backend": GenericBackend}, TypeError, "protocols.Backend. Got GenericBackend. Pass an instance"),
]  # fmt: skip

ROWS = np.ones((H, L))
BACKWARD: list[tuple[dict[Any, Any], type[Exception], str]] = [
    ({"wrt": ()}, ValueError, "wrt must name one or more of 'q', 'k', 'v', each once. Got ()."),
    ({"wrt": ("q", "bias")}, ValueError, "each once. Got ('q', 'bias')."),
    ({"wrt": ("k", "k")}, ValueError, "each once. Got ('k', 'k')."),
    ({"wrt": None}, ValueError, "each once. Got None."),
    ({"wrt": {"q"}}, ValueError, "each once. Got {'q'}."),
    ({"wrt": [["q"]]}, ValueError, "each once. Got [['q']]."),
    ({"out": ROWS}, ValueError, "out must have shape (2, 4, 3). Got (2, 4). Pass what the forward call"),
    ({"dout": Q[:1]}, ValueError, "dout must have shape (2, 4, 3). Got (1, 4, 3)."),
    ({"dout": None}, ValueError, "dout must have shape (2, 4, 3). Got NoneType."),
    ({"stats": (ROWS, Q)}, ValueError, "stats.l must have shape (2, 4). Got (2, 4, 3)."),
    ({"stats": (None, ROWS)}, ValueError, "stats.m must have shape (2, 4). Got NoneType."),
    ({"stats": None}, TypeError, "stats must be the pair (m, l). Got NoneType. Pass Residuals.stats."),
    ({"stats": ()}, TypeError, "stats must be the pair (m, l). Got tuple."),
    ({"dlse": Q}, ValueError, "dlse must have shape (2, 4). Got (2, 4, 3)."),
    ({"dlse": ROWS.astype(complex)}, TypeError, "dlse must have the accumulation dtype, float64, or that"),
    ({"stats": (ROWS, ROWS.astype("f4"))}, TypeError, "stats.l must have the accumulation dtype, float64"),
    ({"dout": Q.astype(">f8")}, TypeError, "dout must be in the machine's byte order. Got dtype >f8."),
    ({"dout": Q.astype("f4")}, TypeError, "dout must have the dtype of the inputs, float64. Got float32."),
    ({"dlse": array_api_strict.asarray(ROWS)}, TypeError, "arrays of the inputs' library. Got out numpy"),
    ({"scale": float("nan")}, ValueError, "scale must be a finite number. Got nan."),
    ({0: Q[0]}, ValueError, "the same number of axes"),
]  # fmt: skip


def call_attention(ring: rc.Ring, changes: dict[Any, Any]) -> Any:
    arrays, options = [Q, Q, Q], {"ring": ring, "layout": layout(L)(ring)}
    for name, value in changes.items():
        right = (
            value(ring)
            if callable(value) and not isinstance(value, type) and value is not rc.causal
            else value
        )
        if isinstance(name, int):
            arrays[name] = right
        else:
            options[name] = right
    return rc.attention(*arrays, **options)


def call_backward(ring: rc.Ring, changes: dict[Any, Any]) -> Any:
    given = {0: Q, "out": Q, "stats": (ROWS, ROWS), "dout": Q, **changes}
    out, stats, dout = (given.pop(name) for name in ("out", "stats", "dout"))
    return rc.attention_backward(given.pop(0), Q, Q, out, stats, dout, ring=ring, **given)


TABLE = [(call_attention, *row) for row in ATTENTION] + [(call_backward, *row) for row in BACKWARD]


def assert_same_on_all(found: list[BaseException], kind: type[Exception], message: str, place: str) -> None:
    assert {type(e) for e in found} == {kind}, found
    texts = {str(e) for e in found}
    assert len(texts) == 1, texts
    assert message in texts.pop() and all(str(e).endswith(place) for e in found)


@pytest.mark.parametrize(("call", "changes", "kind", "message"), TABLE, ids=[row[-1] for row in TABLE])
def test_wrong_arguments_raise_the_same_on_every_rank_before_data_moves(
    call: Any, changes: dict[Any, Any], kind: type[Exception], message: str
) -> None:
    """On one rank alone, on all ranks of three, and on the last of three only."""
    start = time.monotonic()
    assert_same_on_all(errors(1, lambda ring: call(ring, changes)), kind, message, "")

    def counted(ring: rc.Ring, changes: dict[Any, Any]) -> Any:
        try:
            return call(ring, changes)
        finally:
            assert ring.traffic.messages == 0

    assert_same_on_all(errors(3, lambda ring: counted(ring, changes)), kind, message, "(on rank 0 of 3)")
    right = {"mask": Dense(lambda P: (L, P * L))} if isinstance(changes.get("mask"), Dense) else {}
    last = errors(3, lambda ring: counted(ring, changes if ring.rank == 2 else right))
    assert_same_on_all(last, kind, message, "(on rank 2 of 3)")
    assert time.monotonic() - start < 5


def test_the_calls_of_the_table_are_right_without_the_change() -> None:
    for ranks in (1, 3):
        rc.run_ranks(ranks, lambda ring: [call_attention(ring, {}), call_backward(ring, {})], timeout=TIMEOUT)


# ---------------------------------------------------------------------- arguments that differ

DIFFERENT: list[tuple[str, Callable[[rc.Ring], dict[Any, Any]]]] = [
    ("dtype", lambda ring: dict.fromkeys(range(3), Q.astype("f4" if ring.rank else "f8"))),
    ("array library", lambda ring: dict.fromkeys(range(3), array_api_strict.asarray(Q) if ring.rank else Q)),
    ("batch and head shape of q", lambda ring: {0: Q.repeat(1 + ring.rank, 0)}),
    ("batch and head shape of q", lambda ring: dict.fromkeys((0, 1), Q[..., : D - ring.rank])),
    ("batch and head shape of k", lambda ring: {1: Q[: 2 - ring.rank], 2: Q[: 2 - ring.rank]}),
    ("batch and head shape of v", lambda ring: {2: Q[..., : D - ring.rank]}),
    ("mask", lambda ring: {"mask": rc.window(ring.rank, 0)}),
    ("mask", lambda ring: {"mask": rc.documents(np.arange(50) + ring.rank * (np.arange(50) == 25))}),
    ("mask", lambda ring: {"mask": rc.causal() if ring.rank else None}),
    ("scale", lambda ring: {"scale": 0.5 + 1e-16 * 2**ring.rank}),
    ("side", lambda ring: {"side": ("kv", "q")[ring.rank]}),
    ("way", lambda ring: {"way": ("ring", "direct")[ring.rank]}),
    ("layout", lambda ring: {"layout": rc.Layout(("contiguous", "zigzag")[ring.rank], length=8, ranks=2)}),
    ("layout", lambda ring: {"layout": None if ring.rank else layout(L)(ring)}),
    ("k_layout", lambda ring: {"k_layout": None if ring.rank else layout(L)(ring)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes"), DIFFERENT, ids=[f"{n} {i}" for i, (n, _) in enumerate(DIFFERENT)]
)
def test_what_must_be_equal_on_all_ranks_is_compared(name: str, changes: Any) -> None:
    found = errors(2, lambda ring: call_attention(ring, changes(ring)))
    assert_same_on_all(
        found, ValueError, f"all ranks must pass the same {name}. Rank 0 passed ", "rows differ."
    )


@pytest.mark.parametrize(("name", "given"), [("wrt", {"wrt": ("q",)}), ("dlse", {"dlse": ROWS})])
def test_what_must_be_equal_on_all_ranks_is_compared_in_backward(name: str, given: dict[str, Any]) -> None:
    found = errors(3, lambda ring: call_backward(ring, given if ring.rank == 1 else {}))
    assert_same_on_all(
        found, ValueError, f"all ranks must pass the same {name}. Rank 0 passed", "rows differ."
    )


def test_lengths_timeouts_meters_and_dense_rows_may_differ() -> None:
    def on_rank(ring: rc.Ring) -> Any:
        n = 2 + ring.rank
        mine = rc.Ring(ring.transport, timeout=10.0 + ring.rank)
        meter = rc.Meter() if ring.rank else None
        mask = rc.dense(np.full((n, 9), ring.rank > 0)) & rc.causal(8)
        x = np.ones((1, n, 2))
        return rc.attention(x, x, x, ring=mine, meter=meter, mask=mask)

    assert [out.max() for out in rc.run_ranks(3, on_rank, timeout=TIMEOUT)] == [0, 1, 1]


def test_a_ring_must_be_a_ring() -> None:
    """There is nobody to agree with."""
    with pytest.raises(TypeError, match=r"ring must be a ringcore\.Ring\. Got str\. Wrap a communicator"):
        rc.attention(Q, Q, Q, ring="COMM_WORLD")


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds"):
        rc.Ring(timeout=timeout)


# ---------------------------------------------------------------------- what is right


def prepared(*arrays: Any, **options: Any) -> Problem:
    return prepare("attention", *arrays, Options(**options))


def test_defaults(xp: Library) -> None:
    q, k = xp.asarray(np.ones((2, 6, 5, 16))), xp.asarray(np.ones((2, 3, 4, 16)))
    problem = prepared(q, k, k)
    assert problem.scale == 0.25
    assert (problem.side, problem.way, problem.seq_axis, problem.two_d) == ("auto", "auto", -2, False)
    assert repr(problem.mask) == "full()"
    assert problem.q_layout == rc.Layout.contiguous(length=5, ranks=1)
    assert problem.k_layout == rc.Layout.contiguous(length=4, ranks=1)
    assert problem.needs.tolist() == [[True]]
    assert problem.backend.name == ("numpy" if xp.name.startswith("numpy") else "generic")


@pytest.mark.parametrize(("shape", "seq_axis", "canonical"), [
    ((5, 3), -2, (1, 5, 3)), ((5, 3), -3, (1, 5, 3)), ((2, 5, 3), -2, (2, 5, 3)), ((5, 2, 3), -3, (2, 5, 3)),
    ((7, 5, 2, 3), -3, (7, 2, 5, 3)), ((7, 8, 5, 2, 3), -3, (7, 8, 2, 5, 3)),
])  # fmt: skip
def test_axis_orders(xp: Library, shape: tuple[int, ...], seq_axis: int, canonical: tuple[int, ...]) -> None:
    x = xp.asarray(np.arange(np.prod(shape), dtype=float).reshape(shape))
    problem = prepared(x, x, x, seq_axis=seq_axis)
    assert tuple(problem.q.shape) == canonical
    assert np.array_equal(xp.numpy(problem.restored(problem.canonical(x))), xp.numpy(x))
    row = problem.restored_row(problem.q[..., 0])
    assert tuple(row.shape) == (canonical[1:-1] if len(shape) == 2 else canonical[:-1])


def test_lengths_of_the_ranks_make_the_layout() -> None:
    def on_rank(ring: rc.Ring) -> Problem:
        q, k = np.ones((3 * ring.rank, 2)), np.ones((1, 2))
        return prepared(q, k, k, ring=ring)

    for problem in rc.run_ranks(3, on_rank):
        assert problem.q_layout == rc.Layout.from_lengths([0, 3, 6])
        assert problem.k_layout == rc.Layout.contiguous(length=3, ranks=3)


def test_every_rank_knows_who_needs_whose_keys() -> None:
    """Zigzag causal is full, contiguous lower triangular, a window a band; dense arrays are not looked at."""
    P, S = 5, 40
    contiguous = rc.Layout.contiguous(length=S, ranks=P)
    wanted = [
        (rc.causal(), contiguous, np.tri(P, dtype=bool)),
        (rc.causal(), rc.Layout.zigzag(length=S, ranks=P), np.ones((P, P), bool)),
        (rc.window(3, 0), contiguous, np.tri(P, dtype=bool) & ~np.tri(P, k=-2, dtype=bool)),
        (rc.documents([8, 16, 16]), contiguous, np.kron(np.eye(3), np.ones((2, 2)))[1:, 1:].astype(bool)),
        (rc.keys(0, 0), contiguous, np.zeros((P, P), bool)),
        (rc.dense(np.zeros((8, S), bool)), contiguous, np.ones((P, P), bool)),
    ]
    for mask, layout, needs in wanted:

        def on_rank(ring: rc.Ring, mask: rc.Mask = mask, layout: rc.Layout = layout) -> np.ndarray:
            x = np.ones((layout.count(ring.rank), 2))
            return prepared(x, x, x, ring=ring, layout=layout, mask=mask).needs

        for found in rc.run_ranks(P, on_rank):
            assert np.array_equal(found, needs), mask


def test_a_thousand_ranks_worth_of_needs_fits_a_short_message() -> None:
    """One bit a rank goes to each other rank, with the arguments: not one byte, not P x P."""

    def on_rank(ring: rc.Ring) -> int:
        x = np.ones((1, 2))
        prepared(x, x, x, ring=ring)
        return ring.traffic.control_bytes

    assert max(rc.run_ranks(8, on_rank)) < 7 * 1000
