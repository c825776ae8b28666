"""Collective argument checks: every rank raises the same error, before any data moves.

A call that raises on one rank only would leave the others waiting. So each rank first tells all
others what it was called with, or what is wrong with it; then all know the same and act the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ringcore.errors import RingError

if TYPE_CHECKING:
    from ringcore.ring import Ring

_ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ValueError, TypeError, RingError)}

_LONGEST_FACT = 200  # characters

T = TypeVar("T")


def agree(
    call: str,
    ring: Ring,
    check: Callable[[], T],
    facts: Callable[[T], Mapping[str, str]],
    local: Callable[[T], object] = lambda _: None,
) -> tuple[T, list[object]]:
    """Run a check on every rank and compare what the calls must have in common. Collective.

    Parameters
    ----------
    call : str
        What is being called, as in messages: all ranks must call the same.
    ring : Ring
        The ranks that take part.
    check : callable
        Validates this rank's arguments; raises ValueError or TypeError for a wrong one.
    facts : callable
        What must be equal on all ranks, by name, from the result of the check.
    local : callable, optional
        What every rank shall know of every other, as JSON; may differ.

    Returns
    -------
    checked
        The result of this rank's check.
    list
        The ``local`` of each rank.

    Raises
    ------
    ValueError, TypeError, RingError
        On every rank alike: the error of the lowest rank that failed, or the first difference.
        RingError stands for an error of any other type.
    """
    transport, timeout = ring.transport, ring.timeout
    if transport.size == 1:  # nobody to agree with
        checked = check()
        return checked, [local(checked)]
    error: Exception | None = None
    try:
        checked = check()
        message: dict[str, object] = {
            "call": call,
            "facts": _shortened(facts(checked)),
            "local": local(checked),
        }
    except Exception as raised:  # whatever it is, the other ranks must hear of it
        error, message = raised, {"call": call, "error": _described(raised)}
    gathered = transport.allgather_bytes(json.dumps(message).encode(), timeout)
    reports = [json.loads(report) for report in gathered]
    for rank, report in enumerate(reports):
        if report["call"] != reports[0]["call"]:
            raise ValueError(
                f"all ranks must make the same call. Rank 0 made {reports[0]['call']}, rank {rank} "
                f"{report['call']}. Look for a call that depends on the rank."
            )
    for rank, report in enumerate(reports):
        if "error" in report:
            kind, text = report["error"]
            raise _ERRORS[kind](f"{text} (on rank {rank} of {transport.size})") from error
    for name in reports[0]["facts"]:
        for rank, report in enumerate(reports):
            here, there = reports[0]["facts"][name], report["facts"].get(name)
            if here != there:
                raise ValueError(
                    f"all ranks must pass the same {name}. Rank 0 passed {here}, rank {rank} {there}. "
                    "Make the call with equal arguments on every rank; only the arrays' rows differ."
                )
    return checked, [report["local"] for report in reports]


def _described(error: Exception) -> tuple[str, str]:
    for name, kind in _ERRORS.items():
        if isinstance(error, kind):
            return name, str(error)
    return RingError.__name__, f"{type(error).__name__}: {error}"


def _shortened(facts: Mapping[str, str]) -> dict[str, str]:
    """Long texts, as of a layout of thousands of lengths, by their beginning and a digest."""
    return {
        name: text if len(text) <= _LONGEST_FACT else f"{text[:_LONGEST_FACT]}... [{_digest(text)}]"
        for name, text in facts.items()
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
