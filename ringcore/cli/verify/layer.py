"""A feedforward layer over a sharded sequence, compared with its definition in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcore.cli.verify.attention import measured
from ringcore.cli.verify.outcome import Fault, Measure
from ringcore.feedforward import FeedForward, feedforward_vjp
from ringcore.layout import Layout
from ringcore.protocols import Array
from ringcore.ring import Ring
from ringcore.testing import assert_within_contract, from_numpy, oracle, round_to

Floats = NDArray[np.float64]
FACTOR = 8.0
_FEATURES, _HIDDEN, _OUT, _BATCH = 12, 32, 10, 2


@dataclass(frozen=True)
class LayerCheck:
    """Values and gradients of one feedforward layer; those of its parameters are summed over the ring.

    Attributes
    ----------
    xp : module
        Array API namespace of the arrays.
    layout : Layout
        Of the tokens.
    dtype, activation : str
    gated : bool
    seed : int
    """

    xp: ModuleType | Any
    layout: Layout
    dtype: str
    activation: str
    gated: bool
    seed: int

    def solve(self, ring: Ring, backend: Any) -> dict[str, Array]:
        """This rank's y and dx, and the gradients of all parameters by name. Collective."""
        layer, x, dy = self._values()
        there = FeedForward(**{name: from_numpy(self.xp, p, self.dtype) for name, p in layer.items()})
        mine, cotangent = (
            self.layout.shard(from_numpy(self.xp, values, self.dtype), ring.rank) for values in (x, dy)
        )
        y, pullback = feedforward_vjp(there, mine, activation=self.activation, chunk=17, ring=ring)
        gradient, dx = pullback(cotangent)
        return {"y": y, "dx": dx, **{name: g for name, g in gradient._asdict().items() if g is not None}}

    def gather(self, ring: Ring, mine: Mapping[str, Array]) -> dict[str, Array]:
        """The whole arrays on rank 0; gradients of parameters are whole on every rank. Collective."""
        return {name: x if self.is_shared(name) else ring.gather(x, self.layout) for name, x in mine.items()}

    def is_shared(self, name: str) -> bool:
        """Whether a result is whole on every rank: the gradients of parameters are."""
        return name in FeedForward._fields

    def must_send(self) -> bool:
        """Sums over the ring always have something to send."""
        return self.layout.ranks > 1

    def judge(self, whole: Mapping[str, Array]) -> tuple[list[Measure], list[Fault]]:
        """Compare with the oracle; on rank 0."""
        layer, x, dy = self._values()
        grads, dx = oracle.feedforward_vjp(layer, x, dy, self.activation)
        want = {"y": oracle.feedforward(layer, x, self.activation), "dx": dx, **grads}
        cond = conditions(layer, x, dy)
        worst: dict[str, float] = {}
        faults = []
        for name, got in whole.items():

            def compared(factor: float, name: str = name, got: Array = got) -> float:
                return assert_within_contract(
                    got, want[name], cond[name], self.dtype, name=name, factor=factor
                )

            units, message = measured(compared, FACTOR)
            quantity = {"w": "dw", "b": "db"}.get(name[0], name)
            worst[quantity] = max(worst.get(quantity, 0.0), units)
            if message:
                faults.append(Fault(quantity, f"{message}\nIn {self}"))
        return [Measure(quantity, units, FACTOR) for quantity, units in worst.items()], faults

    def _values(self) -> tuple[dict[str, Floats], Floats, Floats]:
        """Parameters by name, x and the cotangent of y as float64; each number is exact in the dtype."""
        rng = np.random.default_rng(self.seed)

        def drawn(*shape: int, size: float = 1.0) -> Floats:
            return round_to(size * rng.standard_normal(shape), self.dtype)

        layer = {
            "w_in": drawn(_FEATURES, _HIDDEN, size=_FEATURES**-0.5),
            "w_out": drawn(_HIDDEN, _OUT, size=_HIDDEN**-0.5),
            "b_in": drawn(_HIDDEN),
            "b_out": drawn(_OUT),
        }
        if self.gated:
            layer["w_gate"] = drawn(_FEATURES, _HIDDEN, size=_FEATURES**-0.5)
            layer["b_gate"] = drawn(_HIDDEN)
        S = self.layout.length
        return layer, drawn(_BATCH, S, _FEATURES), drawn(_BATCH, S, _OUT)


def conditions(layer: Mapping[str, Floats], x: Floats, dy: Floats) -> dict[str, Floats]:
    """What u is multiplied by at most: the same sums with absolute values.

    1.2 bounds the first and second derivatives of gelu, gelu_tanh and silu.
    """
    a = {name: np.abs(p) for name, p in layer.items()}
    rows, d = np.abs(x.reshape(-1, x.shape[-1])), np.abs(dy.reshape(-1, dy.shape[-1]))
    z = rows @ a["w_in"] + a["b_in"]
    gate = rows @ a["w_gate"] + a["b_gate"] if "w_gate" in a else np.ones_like(z)
    dh = d @ a["w_out"].T
    dz, dgate, hidden = dh * gate * 1.2 * (2 + z), dh * 2.4 * z, 2.4 * z * gate
    dx = dz @ a["w_in"].T + (dgate @ a["w_gate"].T if "w_gate" in a else 0)
    return {
        "y": (hidden @ a["w_out"] + a["b_out"]).reshape(dy.shape),
        "dx": dx.reshape(x.shape),
        "w_in": rows.T @ dz, "w_out": hidden.T @ d, "w_gate": rows.T @ dgate,
        "b_in": dz.sum(0), "b_out": d.sum(0), "b_gate": dgate.sum(0),
    }  # fmt: skip
