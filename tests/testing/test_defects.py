"""Defects that the drawn problems must find: each of these kernels is right, but for one thing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.testing import Problem, Results, check_attention, solve
from ringcore.testing.strategies import attention_problems

QUIET = settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@dataclass(frozen=True)
class SlightlyWrong(GenericBackend):
    """One per cent wrong where a condition of the operands and the step holds."""

    when: Any = None

    def attend(self, q, k, v, step, into):
        return super().attend(q, k, v * 1.01 if self.when(q, k, step) else v, step, into)


@dataclass(frozen=True)
class Swallows(GenericBackend):
    """Takes a NaN in one operand for 0, so that a bad key is silently left out."""

    operand: str = "k"

    def _clean(self, name, x):
        return np.where(np.isnan(x), 0, x) if name == self.operand else x

    def attend(self, q, k, v, step, into):
        q, k, v = (self._clean(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
        return super().attend(q, k, v, step, into)

    def attend_backward(self, q, k, v, out, dout, stats, delta, step, wrt, into):
        q, k, v, dout = (self._clean(n, x) for n, x in (("q", q), ("k", k), ("v", v), ("dout", dout)))
        return super().attend_backward(q, k, v, out, dout, stats, delta, step, wrt, into)


def is_found(make, **options):
    @QUIET
    @given(attention_problems(np, max_ranks=2, max_length=12, **options))
    def prop(problem):
        check_attention(problem, solve(problem, backend=make))

    with pytest.raises(AssertionError, match=r"In Problem\(") as caught:
        prop()
    return str(caught.value)


WHEN = {
    "D >= 8": lambda q, k, step: q.shape[-1] >= 8,
    "D >= 16": lambda q, k, step: q.shape[-1] >= 16,
    "scale > 1": lambda q, k, step: step.scale > 1,
    "scale < -1": lambda q, k, step: step.scale < -1,
    "scale == 0": lambda q, k, step: step.scale == 0,
    "H / G >= 4": lambda q, k, step: q.shape[-3] >= 4 * k.shape[-3],
    "H / G >= 8": lambda q, k, step: q.shape[-3] >= 8 * k.shape[-3],
}


@pytest.mark.parametrize("case", WHEN)
def test_a_kernel_that_is_wrong_for_some_sizes_is_found(case):
    message = is_found(lambda **options: SlightlyWrong(when=WHEN[case], **options))
    assert re.search(r"out must be within [\d.]+ u cond", message)


@pytest.mark.parametrize("operand", ["q", "k", "v", "dout"])
def test_a_kernel_that_swallows_nan_is_found(operand):
    message = is_found(lambda **options: Swallows(operand=operand, **options), poison=True)
    assert "must be NaN or inf where a NaN or inf of the inputs reaches it" in message


def test_a_sum_that_is_rounded_with_every_term_is_found():
    """4096 equal terms, each addition rounding the same way; with normal values the same sum passes."""

    def one_by_one(problem):
        """Weights are equal, for queries are 0."""
        sums = np.cumsum(problem.v, axis=-2, dtype=np.float32)[..., -1:, :]
        return [Results(out=np.repeat(sums / np.float32(problem.S_k), problem.S_q, axis=-2))]

    layout = {n: rc.Layout.contiguous(length=n, ranks=1) for n in (4, 4096)}
    problem = Problem(xp=np, q_layout=layout[4], k_layout=layout[4096], dtype="float32", spread=0.0, fill=0.3)
    with pytest.raises(AssertionError, match="out must be within 8 u cond"):
        check_attention(problem, one_by_one(problem), factor=8)
