"""Kernels that are right but for one thing, for the tests of `ringcore verify`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from ringcore.block import GenericBackend
from ringcore.partial import Partial


@dataclass(frozen=True)
class WrongValues(GenericBackend):
    """Values a thousandth too large: out is, and dq and dk follow."""

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        return super().attend(q, k, v * 1.001, step, into)


@dataclass(frozen=True)
class WrongSum(GenericBackend):
    """The sum of weights a ten-thousandth too large: everything divides by it."""

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        acc, m, l = super().attend(q, k, v, step, into)  # noqa: E741
        return Partial(acc, m, l * 1.0001)


@dataclass(frozen=True)
class WrongGradient(GenericBackend):
    """One gradient a ten-thousandth too large."""

    which: str = "q"

    def attend_backward(self, *args: Any) -> Any:
        grads = super().attend_backward(*args)
        return {name: x * 1.0001 if name == self.which else x for name, x in grads.items()}


@dataclass(frozen=True)
class DroppedHop(GenericBackend):
    """What another rank's queries add to dK is lost."""

    def attend_backward(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        dout: Any,
        stats: Any,
        delta: Any,
        step: Any,
        wrt: Any,
        into: Any,
    ) -> Any:
        grads = super().attend_backward(q, k, v, out, dout, stats, delta, step, wrt, into)
        if step.q_pos.shape != step.k_pos.shape or (step.q_pos != step.k_pos).any():
            grads["k"] = into["k"] if "k" in into else grads["k"] * 0
        return grads


@dataclass(frozen=True)
class Unsteady(GenericBackend):
    """Another last bit at every call, far within the bound."""

    calls: Any = field(default_factory=itertools.count)

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        acc, m, l = super().attend(q, k, v, step, into)  # noqa: E741
        return Partial(acc * (1 + next(self.calls) * 2.0**-23), m, l)


@dataclass(frozen=True)
class Swallows(GenericBackend):
    """Takes a NaN in a key for 0."""

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        k, v = (x.copy() for x in (k, v))
        k[k != k] = 0
        v[v != v] = 0
        return super().attend(q, k, v, step, into)


@dataclass(frozen=True)
class Raises(GenericBackend):
    """Has no room on the rank that holds some position, for eight heads."""

    position: int = 0
    error: type[Exception] = MemoryError

    def attend(self, q: Any, k: Any, v: Any, step: Any, into: Any) -> Partial:
        if q.shape[-3] == 8 and self.position in step.q_pos:
            raise self.error("no room for a tile")
        return super().attend(q, k, v, step, into)
