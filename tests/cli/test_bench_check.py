"""The check before the clock: its reference against the oracle, and that it finds what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ringcore as rc
from ringcore import registry
from ringcore.block import GenericBackend
from ringcore.cli.bench import check, inputs
from ringcore.cli.bench import reference as reference_module
from ringcore.cli.bench.reference import reference
from ringcore.cli.bench.rows import BOTH, FORWARD, Row
from ringcore.partial import Partial
from ringcore.testing import oracle
from tests.cli.defects import DroppedHop
from tests.cli.test_bench_parts import row, visible


@dataclass(frozen=True)
class Off(GenericBackend):
    """One result a hundredth too large."""

    which: str = "v"

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        return super().attend(q, k, v * (1.01 if self.which == "out" else 1), step, into)

    def attend_backward(self, *args: Any) -> Any:
        return {n: x * (1.01 if n == self.which else 1) for n, x in super().attend_backward(*args).items()}


@dataclass(frozen=True)
class Nan(GenericBackend):
    """A NaN in the last query's output."""

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        acc, m, l = super().attend(q, k, v, step, into)  # noqa: E741
        acc[..., -1, 0] = np.nan
        return Partial(acc, m, l)


def found(one: Row, ranks: int) -> list[list[str]]:
    def on_each_rank(ring: rc.Ring) -> list[str]:
        positions = one.layout(ranks).positions(ring.rank)
        return check.faults(one, ring, {name: inputs.given(one, name, positions) for name in "qkv"})

    return rc.run_ranks(ranks, on_each_rank, timeout=30.0)


@pytest.mark.parametrize("mask", ["full", "causal", "window:5", "causal&documents:10", "prefix:20"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_reference(mask: str, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inputs, reference_module):
        monkeypatch.setattr(module, "BLOCK", 32)
    one = row(masks=mask, kv_heads=kv_heads)
    every = np.arange(one.length)
    probes, keys = check.probes(one.length), every[3:80:7]
    q, k, v, dout = (inputs.exact(one, name, every) for name in inputs.NAMES)
    q, dout, seen = q[:, probes], dout[:, probes], visible(mask, one.length)[probes]
    want = oracle.reference(q, k, v, dout, visible=seen)
    conditions = oracle.conditions(q, k, v, dout, visible=seen)
    got = reference(one, probes, keys)
    assert set(got.sums) == {"out", "dq", "dk", "dv"}
    for name, (value, size) in got.sums.items():
        rows = keys if name in ("dk", "dv") else slice(None)
        np.testing.assert_allclose(value, getattr(want, name)[:, rows], rtol=1e-12, atol=1e-14)
        assert np.all(size * (1 + 1e-12) >= np.abs(value))
        # what is allowed is no less than the contract's bound, and not a multiple of ten of it
        contract = getattr(conditions, name)[:, rows]
        factor = check.allowed(one, got.largest) / (check.FACTOR * 2.0**-24)
        assert np.all(factor * size + 2.0**-90 >= contract)
        assert np.all(factor * size <= 30 * contract)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("ranks", "layout"), [(1, "zigzag"), (3, "zigzag"), (4, "striped:5"), (2, "contiguous")]
)
def test_what_is_right(dtype: str, ranks: int, layout: str) -> None:
    for direction in (FORWARD, BOTH):
        assert found(row(dtype=dtype, layouts=layout, directions=direction), ranks) == [[]] * ranks


@pytest.mark.parametrize(("S", "ranks"), [(1, 1), (1, 3), (2, 2)])
def test_short_ones(S: int, ranks: int) -> None:
    assert found(row(lengths=S), ranks) == [[]] * ranks


@pytest.mark.parametrize("which", ["out", "q", "k", "v"])
def test_what_is_wrong(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend_of", lambda array: Off(which=which))
    for ranks in (1, 3):
        texts = [text for mine in found(row(), ranks) for text in mine]
        name = which if which == "out" else f"d{which}"
        assert any(text.startswith(f"{name} is wrong: ") for text in texts)
        assert which == "out" or not any(not text.startswith(f"{name} ") for text in texts)


def test_nan_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend_of", lambda array: Nan())
    (texts,) = found(row(directions=FORWARD), 1)
    assert len(texts) == 1 and "position 96, column 0: got nan, want " in texts[0]


def test_a_lost_hop_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "backend_of", lambda array: DroppedHop())
    texts = [text for mine in found(row(masks="full"), 2) for text in mine]
    assert texts and all(text.startswith("dk is wrong: ") for text in texts)
