"""ringcore's NumPy backend, one rank, as many threads as cores."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from cases import CAUSAL, Case, Inputs

import ringcore as rc
from rivals.rival import Call, Rival

NAME = "ringcore"


def prepare(case: Case, arrays: Inputs, setting: Any) -> Call:
    q, k, v, dout = arrays
    mask = rc.causal() if case.mask == CAUSAL else None

    def forward() -> Any:
        return (rc.attention(q, k, v, mask=mask),)

    def both() -> Any:
        out, pullback = rc.attention_vjp(q, k, v, mask=mask)
        return (out, *pullback(dout))

    return Call(both if case.backward else forward, tuple)


def rival(cores: int) -> Rival:
    how = f"rc.attention, rc.attention_vjp; NumPy arrays, one rank, {cores} threads"
    return Rival(NAME, version("ringcore"), how, prepare)
