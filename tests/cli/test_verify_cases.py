"""What is verified, and how results are compared: the parts of `ringcore verify` below its command line."""

from __future__ import annotations

import io
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import ringcore as rc
from ringcore.cli.errors import InputError
from ringcore.cli.verify import libraries
from ringcore.cli.verify.attention import AttentionCheck, measured
from ringcore.cli.verify.cases import Case, default_length, plan
from ringcore.cli.verify.layer import LayerCheck, conditions
from ringcore.cli.verify.libraries import DTYPES, chosen, load
from ringcore.cli.verify.outcome import Fault, Measure, Outcome
from ringcore.cli.verify.progress import followed
from ringcore.cli.verify.tally import Tally
from ringcore.testing import Problem, assert_occurred, oracle, round_to
from ringcore.testing.drawn_mask import names
from ringcore.testing.strategies import attention_problems
from tests.profiles import examples

NUMPY = load("numpy")


def problems(cases: list[Case]) -> list[Problem]:
    return [case.check.problem for case in cases if isinstance(case.check, AttentionCheck)]


# ------------------------------------------------------------------ the plan

WANTED = (
    "P > 1", "P > S", "P is odd and > 1", "empty shard", "S is not a multiple of P", "query that sees no key",
    "key that no query sees", "rank that sees no key", "GQA", "MQA", "H / G >= 4", "D != E", "two layouts",
    "uneven layout", "cross-attention", "2-d arrays", "no batch dims", "two batch dims", "seq_axis=-3",
    "no mask", "mask of three or more parts", "complement", "per-row mask", "dense mask per head",
    "lse has no cotangent", "large scores", "equal values", "side=kv", "side=q", "way=ring", "way=direct",
)  # fmt: skip


def test_the_hard_cases_are_there() -> None:
    met = Counter(event for problem in problems(plan([(NUMPY, DTYPES)], 3, 83)) for event in problem.events())
    assert_occurred(met, WANTED, least=len(DTYPES))


def test_everything_there_is_to_vary_is_varied() -> None:
    cases = plan([(NUMPY, DTYPES)], 4, 83)
    many = problems(cases)
    assert {p.q_layout.kind for p in many} == {"contiguous", "striped", "zigzag", "uneven"}
    constructors = {name for p in many for name in names(p.mask.tree)}
    assert {
        "causal",
        "window",
        "documents",
        "prefix",
        "global_tokens",
        "padding",
        "keys",
        "full",
    } <= constructors
    assert {p.dtype for p in many} == set(DTYPES) == {c.dtype for c in cases}
    assert {p.spread for p in many} == {1.0, 10.0, 100.0}
    assert {p.poison.name for p in many if p.poison} == {"q", "k", "v", "dout"}
    assert {c.check.activation for c in cases if isinstance(c.check, LayerCheck)} == {
        "gelu",
        "gelu_tanh",
        "silu",
    }
    for section, row in {(c.section, c.row) for c in cases if c.section == "mask"}:
        layouts = {c.check.problem.q_layout.kind for c in cases if (c.section, c.row) == (section, row)}  # type: ignore[attr-defined]
        assert len(layouts) == 4, "each mask meets each layout"


def test_a_hidden_key_with_nan_reaches_nothing_and_a_visible_one_something() -> None:
    for case in plan([(NUMPY, DTYPES)], 2, 40, only="NaN/"):
        (problem,) = problems([case])
        reached = any(bool(x.any()) for x in problem.may_be_nonfinite)
        assert reached == (case.row != "in a hidden key"), case.name


@given(
    ranks=st.integers(1, 9), length=st.integers(8, 90), seed=st.integers(-3, 2**70), rounds=st.integers(1, 6),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, unique=True), data=st.data(),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_a_plan(ranks: int, length: int, seed: int, rounds: int, dtypes: list[str], data: Any) -> None:
    whole = plan([(NUMPY, dtypes)], ranks, length, seed=seed, rounds=rounds)
    rows = {(case.section, case.row) for case in whole}
    assert len(whole) == len(rows) * len(dtypes) * rounds == len({case.name for case in whole})
    assert len({p.seed for p in problems(whole)}) == len(problems(whole)), "all have values of their own"
    for problem in problems(whole):
        assert problem.ranks == ranks and max(problem.S_q, problem.S_k) <= max(length, ranks)
        assert problem.poison is None or not np.all(np.isfinite(problem.values[problem.poison.name]))
    quick = plan([(NUMPY, dtypes)], ranks, length, seed=seed, quick=True)
    assert [(case.section, case.row) for case in quick] == list(
        dict.fromkeys((c.section, c.row) for c in whole)
    )
    assert {case.dtype for case in quick} == set(dtypes)
    one = data.draw(st.sampled_from(whole))
    alone = plan([(NUMPY, [one.dtype])], ranks, length, seed=seed, rounds=rounds, only=one.name)
    assert alone == [one], "the values of a case do not depend on what else is verified"
    assert all(case in whole for case in quick)


def test_other_rounds_and_seeds_have_other_values_and_rounds_other_layouts() -> None:
    first, second = plan([(NUMPY, ["float32"])], 3, 40, rounds=2, only="mask/causal")
    assert first.name + "/1" == second.name
    (a, b), (c,) = (
        problems([first, second]),
        problems(plan([(NUMPY, ["float32"])], 3, 40, seed=1, only="mask/causal")),
    )
    assert len({a.seed, b.seed, c.seed}) == 3
    assert a.q_layout != b.q_layout and a.q_layout == c.q_layout


@given(st.integers(1, 500))
def test_the_default_length_is_a_multiple_of_no_number_of_ranks(ranks: int) -> None:
    assert default_length(ranks) % ranks or ranks in (1, 83) or ranks == 3
    assert default_length(ranks) >= 10 * ranks


# ------------------------------------------------------------------ what must be sent


@given(attention_problems(np, max_ranks=4, max_length=12))
@settings(max_examples=examples(200), deadline=None)
def test_something_must_be_sent_if_a_query_sees_a_key_of_another_rank(problem: Problem) -> None:
    seen = np.argwhere(problem.visible)
    home_q, home_k = (
        {int(i): rank for rank in range(problem.ranks) for i in layout.positions(rank)}
        for layout in (problem.q_layout, problem.k_layout)
    )
    crosses = any(home_q[int(i)] != home_k[int(j)] for *_, i, j in seen)
    assert AttentionCheck(problem).must_send() == crosses


# ------------------------------------------------------------------ comparing


def within(limit: float) -> Any:
    def compared(factor: float) -> float:
        if not limit <= factor:
            raise AssertionError("too far off")
        return limit

    return compared


def test_what_is_beyond_the_bound_is_measured_all_the_same() -> None:
    assert measured(within(3.0), 8.0) == (3.0, "")
    assert measured(within(12.0), 8.0) == (12.0, "too far off")
    assert measured(within(math.inf), 8.0) == (math.inf, "too far off")
    # what is wrong may be no number: then the figure must not look like one that is right
    assert measured(lambda factor: within(9.0)(factor) and 3.0, 8.0) == (math.inf, "too far off")


def reference(problem: Problem) -> dict[str, Any]:
    return {name: round_to(x, "float32").astype("float32") for name, x in problem.reference._asdict().items()}


def test_errors_that_have_grown_but_not_beyond_the_bound_are_told() -> None:
    (problem,) = problems(plan([(NUMPY, ["float32"])], 3, 83, only="scores/logits-x-1/"))
    check, whole = AttentionCheck(problem, growth=True), reference(problem)
    measures, faults = check.judge(whole)
    assert not faults and {m.quantity for m in measures if m.bound == 1.5} == {
        "rms out", "rms lse", "rms dq", "rms dk", "rms dv",
    }  # fmt: skip
    whole["dv"] = (whole["dv"] + 3 * 2.0**-24 * problem.conditions.dv).astype("float32")
    measures, (fault,) = check.judge(whole)
    assert fault.quantity == "rms dv" and "must not grow with the ring" in fault.message
    (ratio,) = (m for m in measures if m.quantity == "rms dv")
    assert ratio.worst > 1.5
    assert not AttentionCheck(problem).judge(whole)[1]


LAYERS = plan([(NUMPY, ["float64", "float32", "bfloat16"])], 2, 40, only="feedforward/")


def layer_results(check: LayerCheck) -> dict[str, Any]:
    layer, x, dy = check._values()
    grads, dx = oracle.feedforward_vjp(layer, x, dy, check.activation)
    whole = {"y": oracle.feedforward(layer, x, check.activation), "dx": dx, **grads}
    return {name: round_to(x, check.dtype).astype("float32") for name, x in whole.items()}


@pytest.mark.parametrize("case", [c for c in LAYERS if c.dtype != "float64"], ids=lambda case: case.name)
def test_each_result_of_a_layer_is_compared(case: Case) -> None:
    check = case.check
    assert isinstance(check, LayerCheck)
    from ringcore.testing import from_numpy

    right = {name: from_numpy(NUMPY.xp, x, check.dtype) for name, x in layer_results(check).items()}
    measures, faults = check.judge(right)
    assert not faults and {m.quantity for m in measures} == {"y", "dx", "dw", "db"}
    for name, x in right.items():
        wrong = x.copy()
        wrong[(-1,) * wrong.ndim] *= 1.02
        measures, (fault,) = check.judge({**right, name: wrong})
        assert [m.quantity for m in measures if m.worst > m.bound] == [fault.quantity]
        assert fault.quantity == {"w": "dw", "b": "db"}.get(name[0], name)
        assert f"{name} must be within 8 u cond" in fault.message and "LayerCheck(" in fault.message


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_a_layers_conditions_bound_what_rounding_its_inputs_does(activation: str) -> None:
    """Inputs that are off by 1 u each move no result by more than about u cond."""
    rng = np.random.default_rng(5)
    for gated in (False, True):
        check = LayerCheck(
            NUMPY.xp, rc.Layout.contiguous(length=30, ranks=1), "float64", activation, gated, 3
        )
        layer, x, dy = check._values()
        u = 2.0**-20

        def off(a: Any, u: float = u) -> Any:
            return a * (1 + u * rng.choice([-1.0, 1.0], a.shape))

        def results(layer: Any, x: Any, dy: Any) -> dict[str, Any]:
            grads, dx = oracle.feedforward_vjp(layer, x, dy, activation)
            return {"y": oracle.feedforward(layer, x, activation), "dx": dx, **grads}

        cond, right = conditions(layer, x, dy), results(layer, x, dy)
        moved = results({name: off(p) for name, p in layer.items()}, off(x), off(dy))
        for name in right:
            assert np.all(np.abs(moved[name] - right[name]) <= 4 * u * cond[name]), name


# ------------------------------------------------------------------ adding up


def outcome(row: str, *measures: Measure, faults: tuple[Fault, ...] = (), dtype: str = "float32") -> Outcome:
    case = Case("numpy", dtype, "mask", row, 0, None)  # type: ignore[arg-type]
    return Outcome(case, measures, faults, messages=2, bytes=10)


def test_a_tally() -> None:
    tally = Tally()
    tally.add(outcome("a", Measure("out", 3.0, 8.0), Measure("rms out", 1.4, 1.5)))
    tally.add(outcome("a", Measure("out", 20.0, 100.0), Measure("dk", 1.0, 8.0), dtype="float64"))
    assert tally.passed and tally.worst == (Measure("out", 3.0, 8.0), "numpy/mask/a/float32")
    tally.add(outcome("b", Measure("dk", 9.0, 8.0), faults=(Fault("dk", "bad"), Fault("dk", "too"))))
    assert not tally.passed and (tally.problems, tally.messages, tally.bytes) == (3, 6, 30)
    assert tally.worst == (Measure("dk", 9.0, 8.0), "numpy/mask/b/float32")
    assert tally.by_fault() == {"dk": 1}
    a, b, single = (tally.groups[key] for key in (("mask", "a"), ("mask", "b"), ("dtype", "float32")))
    assert (a.problems, a.failed, a.worst["out"].worst, a.faulty) == (2, 0, 3.0, set())
    assert (b.problems, b.failed, b.faulty) == (1, 1, {"dk"})
    assert (single.problems, single.failed) == (2, 1)
    assert tally.groups["library", "numpy"].problems == 3


def test_a_person_sees_a_bar_and_what_has_failed() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=60, color_system=None)
    outcomes = [outcome("a"), outcome("b", faults=(Fault("dk", "bad"),)), outcome("c")]
    assert list(followed(outcomes, 3, console)) == outcomes
    assert "3/3" in text.getvalue() and "1 FAILED" in text.getvalue()


# ------------------------------------------------------------------ libraries


@pytest.mark.parametrize("name", libraries.LIBRARIES)
def test_a_library_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(InputError, match=rf"--library {name} is not installed. Run: pip install "):
        load(name)


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda module: object())
    monkeypatch.setattr(libraries.importlib, "import_module", fail)
    with pytest.raises(InputError, match=r"--library cupy is installed but does not load: libcuda.so.1"):
        load("cupy")


def test_numpy_has_bfloat16_from_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = libraries.importlib.util.find_spec
    monkeypatch.setattr(
        libraries.importlib.util, "find_spec", lambda name: None if name == "ml_dtypes" else find_spec(name)
    )
    library = load("numpy")
    assert chosen(library, ()) == DTYPES[:3]
    assert "pip install ml_dtypes" in library.lacking
    with pytest.raises(
        InputError, match=r"--dtype bfloat16 cannot be had from numpy here.*pip install ml_dtypes"
    ):
        chosen(library, ("bfloat16",))


def test_the_standard_has_no_16_bit_floats() -> None:
    pytest.importorskip("array_api_strict", reason="array_api_strict is not installed")
    library = load("array-api-strict")
    assert chosen(library, ()) == ("float64", "float32")
    with pytest.raises(
        InputError, match=r"--dtype float16 cannot be had from array_api_strict here. It has float64"
    ):
        chosen(library, ("float32", "float16"))
    assert chosen(library, ("float32",)) == ("float32",)


def test_jax_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    monkeypatch.setattr(libraries.os, "environ", {**libraries.os.environ, "JAX_ENABLE_X64": "0"})
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        library = load("jax")
    finally:
        jax.config.update("jax_enable_x64", before)
    assert chosen(library, ()) == DTYPES[1:] and "unset JAX_ENABLE_X64" in library.lacking
