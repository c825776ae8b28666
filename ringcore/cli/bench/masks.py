"""The words for masks: each is a mask of ringcore and, for the check, the predicate that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ringcore as rc
from ringcore.cli.errors import InputError

Positions = NDArray[np.int64]
Sees = Callable[[Positions, Positions], NDArray[np.bool_]]

_AT_ONCE = 1 << 16


class _Word(NamedTuple):
    numbers: tuple[int, ...]  # how many may follow
    mask: Callable[..., rc.Mask]  # of the length and the numbers
    sees: Callable[..., Any]  # of a query, a key and the numbers


def _window(length: int, left: int, right: int | None = None) -> rc.Mask:
    return rc.window(left - 1, 0) if right is None else rc.window(left, right)


def _in_window(i: Positions, j: Positions, left: int, right: int | None = None) -> Any:
    back, ahead = (left - 1, 0) if right is None else (left, right)
    return (i - j <= back) & (j - i <= ahead)


def _documents(length: int, each: int) -> rc.Mask:
    whole, rest = divmod(length, each)
    return rc.documents([each] * whole + [rest])


_WORDS = {
    "full": _Word((0,), lambda length: rc.full(), lambda i, j: (i >= 0) & (j >= 0)),
    "causal": _Word((0,), lambda length: rc.causal(), lambda i, j: j <= i),
    "window": _Word((1, 2), _window, _in_window),
    "prefix": _Word((1,), lambda length, n: rc.causal() | rc.prefix(n), lambda i, j, n: (j <= i) | (j < n)),
    "documents": _Word((1,), _documents, lambda i, j, n: i // n == j // n),
}
KNOWN = "full, causal, window:N, window:LEFT:RIGHT, prefix:N, documents:N, or several joined by &"


@dataclass(frozen=True)
class Words:
    """A mask in words, for any length.

    Attributes
    ----------
    text : str
        As in tables: ``causal&documents:512``.

    Examples
    --------
    >>> words("window:3").mask(8)
    window(2, 0)
    >>> words("causal & documents:2").sees(np.array([[3]]), np.arange(4)).tolist()
    [[False, False, True, True]]
    >>> words("causal").pairs(1000)
    500500
    """

    text: str

    def mask(self, length: int) -> rc.Mask:
        """Ringcore's mask."""
        return reduce(and_, [_WORDS[name].mask(length, *numbers) for name, numbers in self._parts()])

    def sees(self, i: Positions, j: Positions) -> NDArray[np.bool_]:
        """Whether query i sees key j: the definition, without ringcore's mask."""
        return np.asarray(reduce(and_, [_WORDS[name].sees(i, j, *n) for name, n in self._parts()]))

    def pairs(self, length: int) -> int:
        """How many pairs of a query and a key that it sees there are; counted from the mask's intervals."""
        mask, count = self.mask(length), 0
        for start in range(0, length, _AT_ONCE):
            lo, hi = mask.lower(np, np.arange(start, min(start + _AT_ONCE, length)), length)
            count += int(np.sum(hi - lo, dtype=np.int64))
        return count

    def _parts(self) -> list[tuple[str, list[int]]]:
        parts = [part.split(":") for part in self.text.split("&")]
        return [(name, [int(number) for number in numbers]) for name, *numbers in parts]


def words(text: str) -> Words:
    """Read a mask.

    Raises
    ------
    InputError
        If it is none.
    """
    parts = ["".join(part.split()) for part in text.split("&")]
    for part in parts:
        name, *numbers = part.split(":")
        word = _WORDS.get(name)
        if word is None or len(numbers) not in word.numbers or not all(_whole(n) for n in numbers):
            raise InputError(f"--mask must be one of {KNOWN}. Got {text.strip() or 'nothing'}.")
        if len(numbers) == 1 and int(numbers[0]) < 1:
            raise InputError(f"--mask {name}:N must have N of at least 1. Got {part}.")
    return Words("&".join(parts))


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16
