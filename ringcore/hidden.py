"""What lies between a feedforward layer's products, for any library: an activation, and perhaps a gate."""

from __future__ import annotations

from dataclasses import dataclass

from ringcore.activation import Activation
from ringcore.protocols import Array


@dataclass(frozen=True)
class PlainHidden:
    """See `ringcore.protocols.Hidden`; writes to nothing.

    Parameters
    ----------
    act : Activation
    """

    act: Activation

    def forward(self, z: Array, b_in: Array | None, gate: Array | None, b_gate: Array | None) -> Array:
        """``act(z + b_in) (gate + b_gate)``."""
        h = self.act.value(_plus(z, b_in))
        return h if gate is None else h * _plus(gate, b_gate)

    def backward(
        self, z: Array, b_in: Array | None, gate: Array | None, b_gate: Array | None, dh: Array
    ) -> tuple[Array, Array, Array | None]:
        """The same, and the cotangents of z and gate."""
        z = _plus(z, b_in)
        slope = self.act.derivative(z)
        h = self.act.value(z)
        del z  # of hidden width, and done with
        if gate is None:
            return h, dh * slope, None
        gate = _plus(gate, b_gate)
        dgate = dh * h
        h = h * gate
        dh = dh * gate
        return h, dh * slope, dgate


def _plus(product: Array, bias: Array | None) -> Array:
    return product if bias is None else product + bias
