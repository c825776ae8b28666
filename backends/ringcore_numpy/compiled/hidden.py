"""What lies between the products of a feedforward layer: one pass, in place, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial as bind
from typing import Any

import numpy as np

from ringcore_numpy.compiled.activations import ACTIVATIONS, both
from ringcore_numpy.compiled.kernel import Kernel
from ringcore_numpy.pool import cores

Array = Any

_TASK_NUMBERS = 1 << 16
"""Rows of about so many numbers are a task: it costs some 10 us of Python, and takes some 100."""

_NUMBER_FLOPS = 50
"""Operations for one number: for `gelu` rather more, for `relu` less."""


def _forward(which: Any, z: Array, gate: Array, bias: Array, first: int, last: int) -> None:
    """From products z and gate: ``h = act(z + bias[0]) (gate + bias[1])`` over z; gate of size 0: none."""
    for i in range(first, last):
        if gate.size == 0:
            for j in range(z.shape[1]):
                z[i, j] = both(which, z[i, j] + bias[0, j])[0]
        else:
            for j in range(z.shape[1]):
                z[i, j] = both(which, z[i, j] + bias[0, j])[0] * (gate[i, j] + bias[1, j])


def _backward(which: Any, z: Array, gate: Array, dh: Array, bias: Array, first: int, last: int) -> None:
    """From z, gate and the cotangent dh: h over z, the cotangent of z over dh, that of gate over gate."""
    for i in range(first, last):
        if gate.size == 0:
            for j in range(z.shape[1]):
                value, slope = both(which, z[i, j] + bias[0, j])
                z[i, j] = value
                dh[i, j] *= slope
        else:
            for j in range(z.shape[1]):
                value, slope = both(which, z[i, j] + bias[0, j])
                factor, cotangent = gate[i, j] + bias[1, j], dh[i, j]
                z[i, j] = value * factor
                dh[i, j] = cotangent * factor * slope
                gate[i, j] = cotangent * value


_forward_kernel, _backward_kernel = Kernel(_forward), Kernel(_backward)


@dataclass(frozen=True)
class Hidden:
    """See `ringcore.protocols.Hidden`.

    Parameters
    ----------
    name : str
        One of `ringcore.activation.ACTIVATIONS`.
    """

    name: str

    def forward(self, z: Array, b_in: Array | None, gate: Array | None, b_gate: Array | None) -> Array:
        """What the last product takes, written over z."""
        arrays = (z, _or_nothing(gate, z), _biases(z, b_in, b_gate))
        self._run(_forward_kernel, *arrays)
        return z

    def backward(
        self, z: Array, b_in: Array | None, gate: Array | None, b_gate: Array | None, dh: Array
    ) -> tuple[Array, Array, Array | None]:
        """The same, and the cotangents of z and gate, written over dh and gate."""
        arrays = (z, _or_nothing(gate, z), dh, _biases(z, b_in, b_gate))
        self._run(_backward_kernel, *arrays)
        return z, dh, gate

    def _run(self, kernel: Kernel, z: Array, *arrays: Array) -> None:
        arguments = (ACTIVATIONS[self.name], z, *arrays)
        compiled = kernel.of(f"{z.dtype.name} {self.name}", *arguments, 0, 0)
        L, F = z.shape
        rows = max(1, _TASK_NUMBERS // max(F, 1))
        tasks: list[Callable[[], None]] = [
            bind(compiled, *arguments, first, min(first + rows, L)) for first in range(0, L, rows)
        ]
        cores.run(tasks, _NUMBER_FLOPS * z.size)


def _or_nothing(gate: Array | None, like: Array) -> Array:
    return np.empty((0, 0), like.dtype) if gate is None else gate


def _biases(z: Array, *biases: Array | None) -> Array:
    """Rows of biases, 0 where there is none."""
    rows = np.zeros((len(biases), z.shape[1]), z.dtype)
    for row, bias in zip(rows, biases, strict=True):
        if bias is not None:
            row[:] = bias
    return rows
