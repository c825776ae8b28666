"""Solving cases on ranks: every rank takes part, rank 0 compares, no error on one rank makes another wait."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import ringcore as rc
from ringcore.agree import is_agreed
from ringcore.cli.verify.cases import Case
from ringcore.cli.verify.outcome import Fault, Outcome
from ringcore.errors import PeerFailed
from ringcore.protocols import Array
from ringcore.testing import digest, to_numpy


class _Note(NamedTuple):
    """What a rank has to say about a case that it has solved."""

    changed: list[str]  # results that differ when the call is repeated
    messages: int
    bytes: int
    shared: str  # digest of what all ranks must have alike


class _Solved(NamedTuple):
    whole: Mapping[str, Array]  # on rank 0
    note: _Note


def on_threads(
    ranks: int, cases: Sequence[Case], *, timeout: float, backend: Any = None
) -> Iterator[Outcome]:
    """Outcomes on ranks that are threads of this process: a new ring for each case.

    Parameters
    ----------
    ranks : int
    cases : sequence of Case
        For as many ranks.
    timeout : float
        Seconds after which waiting for a silent rank becomes an error.
    backend : Backend, optional
        Kernels to verify; by default the library's own.
    """
    for case in cases:
        try:
            solved = rc.run_ranks(ranks, _solve, case, backend, timeout=timeout)
        except Exception as error:
            yield _failed(case, error)
        else:
            yield _judged(case, solved[0].whole, [one.note for one in solved])


def on_ring(ring: rc.Ring, cases: Sequence[Case], *, backend: Any = None) -> Iterator[Outcome]:
    """Outcomes on the ranks of a ring; complete on rank 0, the others see only what stops all. Collective.

    An error that all ranks agree on is the case's, and the next one follows. One that a rank has alone
    breaks the ring: the outcome says so on every rank, and is the last.

    Parameters
    ----------
    ring, cases, backend
        As in `on_threads`.
    """
    for case in cases:
        try:
            whole, note = _solve(ring, case, backend)
            notes = [_Note(*told) for told in _told(ring, note)]
        except Exception as error:
            stops = ring.size > 1 and not is_agreed(error, ring.transport)
            if stops:  # whoever waits for this rank need not
                ring.transport.give_up(error)
            yield _failed(case, error, stops=stops, rank=ring.rank)
            if stops:
                return
        else:
            yield _judged(case, whole, notes) if ring.rank == 0 else Outcome(case)


def _solve(ring: rc.Ring, case: Case, backend: Any) -> _Solved:
    """Solve a case twice, and gather its results on rank 0. Collective."""
    traffic = ring.traffic
    before = traffic.messages, traffic.bytes
    mine = case.check.solve(ring, backend)
    note = _Note([], traffic.messages - before[0], traffic.bytes - before[1], _shared(case, mine))
    again = case.check.solve(ring, backend)
    note.changed.extend(name for name in mine if _bits(mine[name]) != _bits(again[name]))
    return _Solved(case.check.gather(ring, mine), note)


def _told(ring: rc.Ring, note: _Note) -> list[Any]:
    return [json.loads(x) for x in ring.transport.allgather_bytes(json.dumps(note).encode(), ring.timeout)]


def _shared(case: Case, mine: Mapping[str, Array]) -> str:
    names = [name for name in mine if case.check.is_shared(name)]
    return digest([_bits(mine[name]) for name in names]) if names else ""


def _bits(x: Array) -> bytes:
    """The same bytes for the same bits; NaN is NaN."""
    values = to_numpy(x)
    return np.where(np.isnan(values), np.nan, values).tobytes()


def _judged(case: Case, whole: Mapping[str, Array], notes: Sequence[_Note]) -> Outcome:
    """What rank 0 finds; an exception of the comparison is a finding, too: the other ranks have gone on."""
    messages, nbytes = sum(note.messages for note in notes), sum(note.bytes for note in notes)
    try:
        measures, faults = case.check.judge(whole)
        must_send = case.check.must_send()
    except Exception as error:
        return _failed(case, error)
    for rank, note in enumerate(notes):
        if note.changed:
            names = ", ".join(note.changed)
            text = f"the same call must give the same bits. {names} differ on rank {rank}."
            faults.append(Fault("repeat", text))
        if note.shared != notes[0].shared:
            text = f"all ranks must get the same sums. Those of rank {rank} are not rank 0's."
            faults.append(Fault("wire", text))
    if must_send and nbytes == 0:
        faults.append(Fault("wire", "what a rank needs of others must be sent. No byte was."))
    return Outcome(case, tuple(measures), tuple(faults), messages, nbytes)


def _failed(case: Case, error: Exception, *, stops: bool = False, rank: int | None = None) -> Outcome:
    where = "" if rank is None else f" (on rank {rank})"
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", []))
    text = f"{type(error).__name__}: {error}{where}{notes}\nIn {case.check}"
    quantity = "peer" if isinstance(error, PeerFailed) else "error"
    return Outcome(case, faults=(Fault(quantity, text),), stops=stops)
