"""Text from outside that goes to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with escapes for what a terminal would obey instead of show: control characters, bidi marks.

    Examples
    --------
    >>> print(printable("chr\x1b[31m1"))
    chr\x1b[31m1
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
