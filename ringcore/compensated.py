"""Sums of many tiles that do not lose a bit with each.

Adding tile after tile to a sum rounds each time, and where the terms are alike the roundings all go
the same way: the error would grow with the length of the sequence.

Reference: W. Kahan, *Further remarks on reducing truncation errors*, 1965; N. J. Higham, *Accuracy and
Stability of Numerical Algorithms*, 2nd ed., algorithm 4.2.
"""

from __future__ import annotations

from ringcore.protocols import Array


def add(total: Array, lost: Array, term: Array) -> tuple[Array, Array]:
    """``total + term``, and what rounding has added to it: to be passed as ``lost`` with the next term.

    Examples
    --------
    >>> import numpy as np
    >>> total, lost = np.float32(2**24), np.float32(0)
    >>> for _ in range(4):
    ...     total, lost = add(total, lost, np.float32(1))
    >>> float(total) - 2**24  # without compensation: 0
    4.0
    """
    term = term - lost
    new = total + term
    return new, (new - total) - term
