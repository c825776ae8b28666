"""What the harness knows of a contender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cases import Array, Case, Inputs


class Unavailable(Exception):
    """This contender, or this case of it, cannot run here; the message says why."""


@dataclass(frozen=True)
class Call:
    """A contender with its arrays in place, in its own order of axes.

    ``run`` is what is timed and ends when the results are there. ``arrays`` makes NumPy arrays (H, S, D) of
    what it returned: out, or out, dq, dk, dv.
    """

    run: Callable[[], Any]
    arrays: Callable[[Any], tuple[Array, ...]]


@dataclass(frozen=True)
class Rival:
    """A contender.

    ``prepare(case, inputs, setting)`` may take its time: it compiles and copies. ``settings`` are those that
    `sweep.py` tries, the documented default first; one is no choice. ``how`` says in words how it is called.
    ``long``: it takes part beyond `compare.SHORT` tokens.
    """

    name: str
    version: str
    how: str
    prepare: Callable[[Case, Inputs, Any], Call]
    settings: tuple[Any, ...] = (None,)
    long: bool = True
    close: Callable[[], None] = lambda: None
