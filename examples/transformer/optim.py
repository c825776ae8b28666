"""Plain optimizers on one flat vector. Every rank makes the same step from the same gradient: no messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from weights import Floats


class Optimizer(Protocol):
    """Changes weights in place, one step at a time."""

    def step(self, weights: Floats, gradient: Floats) -> None:
        """One step down; ``weights`` (N,) is written to."""
        ...


@dataclass
class SGD:
    """Stochastic gradient descent.

    Examples
    --------
    >>> w = np.array([1.0])
    >>> SGD(rate=0.1).step(w, np.array([2.0]))
    >>> w
    array([0.8])
    """

    rate: float

    def step(self, weights: Floats, gradient: Floats) -> None:
        """See `Optimizer`."""
        weights -= self.rate * gradient


@dataclass
class Adam:
    """Adam (Kingma and Ba, 2015), with the bias of its running means corrected.

    Examples
    --------
    >>> w = np.array([1.0, 1.0])
    >>> Adam(rate=0.1).step(w, np.array([2.0, -30.0]))  # the first step has the size of the rate
    >>> w.round(6)
    array([0.9, 1.1])
    """

    rate: float
    decay: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8
    _steps: int = 0
    _mean: Floats = field(default_factory=lambda: np.zeros(()))
    _square: Floats = field(default_factory=lambda: np.zeros(()))

    def step(self, weights: Floats, gradient: Floats) -> None:
        """See `Optimizer`."""
        if self._steps == 0:
            self._mean, self._square = np.zeros_like(weights), np.zeros_like(weights)
        self._steps += 1
        a, b = self.decay
        self._mean += (1 - a) * (gradient - self._mean)
        self._square += (1 - b) * (gradient * gradient - self._square)
        mean, square = self._mean / (1 - a**self._steps), self._square / (1 - b**self._steps)
        weights -= self.rate * mean / (np.sqrt(square) + self.eps)


OPTIMIZERS = {"adam": Adam, "sgd": SGD}
