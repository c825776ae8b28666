"""What is measured: each combination of the options is a row of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ringcore.cli.bench.masks import Words, words
from ringcore.cli.errors import InputError
from ringcore.cli.verify.libraries import Library
from ringcore.layout import Layout

FORWARD, BOTH = "forward", "both"
LONGEST = 2**31 - 1


@dataclass(frozen=True)
class Row:
    """One self-attention: H query heads and G key heads of S tokens, D wide.

    Attributes
    ----------
    library : Library
    dtype : str
    length, heads, kv_heads, dim : int
        S, H, G, D.
    mask : Words
    spread : str
        The layout in words, say ``zigzag`` or ``striped:64``.
    backward : bool
        Whether the gradients of q, k and v are computed, too.
    """

    library: Library
    dtype: str
    length: int
    heads: int
    kv_heads: int
    dim: int
    mask: Words
    spread: str
    backward: bool

    @cached_property
    def pairs(self) -> int:
        """Query-key pairs that the mask lets through, in one head."""
        return self.mask.pairs(self.length)

    @property
    def products(self) -> int:
        """Two forward (scores, out); five more backward (the scores again, dv, dp, dq, dk)."""
        return 7 if self.backward else 2

    @property
    def flops(self) -> int:
        """Useful floating-point operations: of the products, for visible pairs only."""
        return 2 * self.dim * self.products * self.heads * self.pairs

    @property
    def direction(self) -> str:
        """In full."""
        return "forward+backward" if self.backward else "forward"

    def layout(self, ranks: int) -> Layout:
        """Who holds what."""
        kind, _, block = self.spread.partition(":")
        make: Callable[..., Layout] = getattr(Layout, kind)
        return make(length=self.length, ranks=ranks, **({"block": int(block)} if block else {}))

    def __str__(self) -> str:
        return f"S = {self.length:,}, {self.mask.text}, {self.direction}"


def listed(option: str, texts: Iterable[str], default: str, known: Sequence[str] = ()) -> list[str]:
    """The values of an option that may be given several times, or several with commas between; each once.

    Raises
    ------
    InputError
        If a value is empty, or not among the known ones.

    Examples
    --------
    >>> listed("--dim", ["64,128", "64"], "64")
    ['64', '128']
    """
    given = [x.strip() for text in (list(texts) or [default]) for x in text.split(",")]
    for x in given:
        if not x or (known and x not in known):
            must = f"one of {', '.join(known)}" if known else "values with commas between them"
            raise InputError(f"{option} must be {must}. Got {x or 'nothing'}.")
    return list(dict.fromkeys(given))


def numbers(option: str, texts: Iterable[str], default: str, most: int = LONGEST) -> list[int]:
    """The same for whole numbers from 1 to ``most``."""
    found = []
    for x in listed(option, texts, default):
        if not (x.isascii() and x.isdigit()) or not 1 <= int(x) <= most:
            raise InputError(f"{option} must be a whole number from 1 to {most}. Got {x}.")
        found.append(int(x))
    return list(dict.fromkeys(found))


def spreads(texts: Iterable[str], default: str) -> list[str]:
    """Layouts in words."""
    found = listed("--layout", texts, default)
    for x in found:
        kind, colon, block = x.partition(":")
        if kind == "striped" and colon and block.isascii() and block.isdigit() and 0 < int(block) <= LONGEST:
            continue
        if kind not in ("contiguous", "striped", "zigzag") or colon:
            raise InputError(f"--layout must be contiguous, striped, striped:BLOCK or zigzag. Got {x}.")
    return found


def rows(
    libraries: Sequence[tuple[Library, Sequence[str]]],
    *,
    lengths: Sequence[int],
    heads: int,
    kv_heads: int,
    dims: Sequence[int],
    masks: Sequence[str],
    layouts: Sequence[str],
    directions: Sequence[str],
) -> list[Row]:
    """All combinations, in the order of the report: what differs most from row to row comes last."""
    choices: list[Any] = [words(text) for text in masks]
    return [
        Row(library, dtype, length, heads, kv_heads, dim, mask, spread, direction == BOTH)
        for library, dtypes in libraries
        for dtype in dtypes
        for dim in dims
        for spread in layouts
        for length in lengths
        for mask in dict.fromkeys(choices)
        for direction in directions
    ]
