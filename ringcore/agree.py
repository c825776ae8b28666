"""Collective argument checks: every rank raises the same error, before any data moves.

A call that raises on one rank only would leave the others waiting. So each rank first tells all
others what it was called with, or what is wrong with it; then all know the same and act the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ringcore.errors import RingError

if TYPE_CHECKING:
    from ringcore.protocols import Transport
    from ringcore.ring import Ring

_ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ValueError, TypeError, RingError)}

_LONGEST_FACT = 200  # characters

_MOST_AGREEMENTS = 256

T = TypeVar("T")


@dataclass
class Agreements:
    """What the ranks of a ring have agreed on so far, for ``check="once"``.

    Attributes
    ----------
    known : dict of bytes to list
        The ``local`` of each rank, by the mark of a call and this rank's own ``local``.
    mark : bytes
        Digest of what the call in progress has in common on all ranks, empty if nobody relies on it; its
        messages carry it.
    """

    known: dict[bytes, list[object]] = field(default_factory=dict)
    mark: bytes = b""

    def add(self, common: object) -> None:
        """Let the mark stand for this, too."""
        self.mark = hashlib.blake2b(self.mark + json.dumps(common).encode(), digest_size=8).digest()

    def keep(self, key: bytes, everybody: list[object]) -> None:
        """Remember an agreement, and forget the oldest; all ranks make the same ones in the same order."""
        self.known[key] = everybody
        if len(self.known) > _MOST_AGREEMENTS:
            del self.known[next(iter(self.known))]


def is_agreed(error: BaseException, transport: Transport) -> bool:
    """Whether every rank of this transport raises this error: nobody there waits for the one that does."""
    return getattr(error, "_ringcore_agreed", None) is transport


def agree(
    call: str,
    ring: Ring,
    check: Callable[[], T],
    facts: Callable[[T], Mapping[str, str]],
    local: Callable[[T], object] = lambda _: None,
    *,
    repeats: bool = False,
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
    repeats : bool, default False
        Whether a ring with ``check="once"`` may take the answer that it got to the same question before. Only
        if ``local`` follows from the facts and the rank: else ranks could remember different answers.

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

    Notes
    -----
    Where answers come from memory, an error of the check is this rank's alone; `Ring.exclusive` tells the
    others of it.
    """
    if ring.size == 1:  # nobody to agree with
        try:
            checked = check()
        except Exception as alone:
            raise _agreed(alone, ring) from alone.__cause__
        return checked, [local(checked)]
    memory = ring.agreements if repeats and ring.check == "once" else None
    error: Exception | None = None
    key = b""
    try:
        checked = check()
        common = {"check": ring.check, **_shortened(facts(checked))}
        message: dict[str, object] = {"call": call, "facts": common, "local": local(checked)}
        if memory is not None:
            memory.add([call, common])
            key = memory.mark + json.dumps(message["local"]).encode()
            if key in memory.known:
                memory.add(memory.known[key])
                return checked, memory.known[key]
    except Exception as raised:  # whatever it is, the other ranks must hear of it
        if memory is not None and memory.known:  # they may be past the comparison
            raise
        error, message = raised, {"call": call, "error": _described(raised)}
    gathered = ring.transport.allgather_bytes(json.dumps(message).encode(), ring.timeout)
    reports = [json.loads(report) for report in gathered]
    try:
        _compare(reports, error)
    except Exception as same:
        raise _agreed(same, ring) from same.__cause__
    everybody = [report["local"] for report in reports]
    if memory is not None:
        memory.keep(key, everybody)
        memory.add(everybody)
    return checked, everybody


def _agreed(error: Exception, ring: Ring) -> Exception:
    error._ringcore_agreed = ring.transport  # type: ignore[attr-defined]
    return error


def _compare(reports: list[dict[str, Any]], error: Exception | None) -> None:
    """Raise what all ranks are to raise, if anything."""
    for rank, report in enumerate(reports):
        if report["call"] != reports[0]["call"]:
            raise ValueError(
                f"all ranks must make the same call. Rank 0 made {reports[0]['call']}, rank {rank} "
                f"{report['call']}. Look for a call that depends on the rank."
            )
    for rank, report in enumerate(reports):
        if "error" in report:
            kind, text = report["error"]
            raise _ERRORS[kind](f"{text} (on rank {rank} of {len(reports)})") from error
    for name in reports[0]["facts"]:
        for rank, report in enumerate(reports):
            here, there = reports[0]["facts"][name], report["facts"].get(name)
            if here != there:
                raise ValueError(
                    f"all ranks must pass the same {name}. Rank 0 passed {here}, rank {rank} {there}. "
                    "Make the call with equal arguments on every rank; only the arrays' rows differ."
                )


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
