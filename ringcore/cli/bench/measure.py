"""One row on one rank: check, one call to see what it takes, then products, attention, exchanges in turn."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import ringcore as rc
from ringcore.cli.bench import check, inputs
from ringcore.cli.bench.figures import Figures, Taken, figures
from ringcore.cli.bench.gemm import Gemm
from ringcore.cli.bench.peak import Peak
from ringcore.cli.bench.rows import Row
from ringcore.cli.bench.watched import Replay, Watched
from ringcore.dtypes import accumulation_name

PAUSE = 0.02
"""Seconds before each sample: threads of BLAS and OpenMP spin for some time before they sleep."""
SHORTEST = 0.1
"""Seconds of a sample at least: shorter calls are timed several at a time."""
FEWEST, MOST = 3, 25
"""Loops, where the time decides how many."""


@dataclass(frozen=True)
class How:
    """How to measure.

    Attributes
    ----------
    skip : int
        Calls that are not timed.
    loop : int or None
        Loops; None: as many as ``seconds`` allows.
    seconds : float
        For a row.
    scaling : bool
        Whether one rank alone solves the same problem, too.
    """

    skip: int = 1
    loop: int | None = None
    seconds: float = 5.0
    scaling: bool = False


class Wrong(Exception):
    """The answer is not right, as all ranks know; the text says what is wrong with it."""


Tell = Callable[[int, int], None]
"""Gets how many loops are done, and of how many."""


def measure(
    ring: rc.Ring, row: Row, how: How, gemm: Gemm | None, tell: Tell = lambda done, of: None
) -> Figures:
    """Measure a row. Collective; the same figures on every rank.

    Parameters
    ----------
    ring : Ring
    row : Row
    how : How
    gemm : Gemm or None
        None on a rank that shares the process of one which has it.
    tell : callable
        Follows the progress.

    Raises
    ------
    Wrong
        On every rank, if the answer is wrong on one.
    """
    begin = time.perf_counter()
    watched = Watched(ring.transport)
    with rc.Ring(watched, timeout=ring.timeout) as own, _alone(ring, how) as solo:
        work = _Work(own, row)
        _all_right(ring, check.faults(row, own, work.arrays))
        taken = Taken(cores=gemm.cores if gemm else 0)
        replay, seconds = _first(ring, work, watched, gemm is not None, taken)
        alone = _Work(solo, row) if solo is not None and ring.rank == 0 else None
        dtype = accumulation_name(row.dtype)
        if gemm is not None:
            gemm.prepare(dtype)
            taken.gemm_flops = gemm.flops
        product = _product(ring, gemm, dtype, taken)
        spent = time.perf_counter() - begin
        loops, taken.calls = _so_often(ring, how, spent, seconds, product)
        for _ in range(how.skip):
            work()
        if alone is not None:
            alone()  # the first call is not like the others
            taken.one_rank_cores = gemm.cores if gemm else 0
        for done in range(loops):
            tell(done, loops)
            watched.blocked = watched.showing = 0.0
            taken.seconds.append(_timed(ring, work, taken.calls))
            taken.blocked.append(watched.blocked / taken.calls)
            taken.showing.append(watched.showing / taken.calls)
            _together(ring)
            taken.alone.append(replay.seconds(ring.timeout))
            if how.scaling:
                one = _timed(ring, alone or (lambda: None), taken.calls)
                taken.one_rank += [one] if alone is not None else []
            _product(ring, gemm, dtype, taken)
        return figures(row, [Taken(**note) for note in _told(ring, asdict(taken))])


class _Work:
    """The call that is timed, on this rank."""

    def __init__(self, ring: rc.Ring, row: Row) -> None:
        self.layout = row.layout(ring.size)
        positions = self.layout.positions(ring.rank)
        names = inputs.NAMES if row.backward else inputs.NAMES[:3]
        self.arrays = {name: inputs.given(row, name, positions) for name in names}
        self.ring, self.row, self.mask = ring, row, row.mask.mask(row.length)
        self.meter: rc.Meter | None = None

    def __call__(self) -> None:
        options: dict[str, Any] = {
            "ring": self.ring, "layout": self.layout, "mask": self.mask, "meter": self.meter
        }  # fmt: skip
        q, k, v = (self.arrays[name] for name in "qkv")
        if self.row.backward:
            out, pullback = rc.attention_vjp(q, k, v, **options)
            _settled(out, *pullback(self.arrays["dout"]))
        else:
            _settled(rc.attention(q, k, v, **options))


def _settled(*arrays: Any) -> None:
    """Return when they are computed: some libraries return before."""
    for x in arrays:
        if hasattr(x, "block_until_ready"):  # JAX
            x.block_until_ready()
        elif hasattr(x, "__cuda_array_interface__") and hasattr(x, "get"):  # CuPy
            x.get()


def _alone(ring: rc.Ring, how: How) -> AbstractContextManager[rc.Ring | None]:
    """A ring of this rank alone that has this rank's cores; if one is wanted. Collective."""
    return ring.split(ring.rank) if how.scaling else nullcontext()


def _first(
    ring: rc.Ring, work: _Work, watched: Watched, is_first: bool, taken: Taken
) -> tuple[Replay, float]:
    """One call that is not timed: what it moves, computes and needs; and about how long it takes."""
    peak = Peak() if is_first else None
    traffic = ring.traffic
    _together(ring)
    if peak is not None:
        peak.begin()
    before, work.meter, watched.notes, watched.shown = (traffic.messages, traffic.bytes), rc.Meter(), [], 0
    _together(ring)
    begin = time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    _together(ring)
    if peak is not None:
        taken.peak, taken.peak_by = peak.end()
    taken.messages, taken.bytes = traffic.messages - before[0], traffic.bytes - before[1]
    taken.shown, taken.flops = watched.shown, work.meter.flops
    notes, work.meter, watched.notes = watched.notes, None, None
    return Replay(ring.transport, notes), seconds


def _so_often(ring: rc.Ring, how: How, spent: float, call: float, product: float) -> tuple[int, int]:
    """Loops, and calls in each; the same on every rank."""
    spent, call, product = (max(times) for times in zip(*_told(ring, [spent, call, product]), strict=True))
    calls = max(1, math.ceil(SHORTEST / max(call, 1e-6)))
    if how.loop is not None:
        return how.loop, calls
    each = calls * call * (1 + ring.size * how.scaling) + product + 3 * PAUSE
    return max(FEWEST, min(MOST, int((how.seconds - spent - how.skip * call) / each))), calls


def _timed(ring: rc.Ring, work: Callable[[], None], calls: int) -> float:
    """Seconds of one call, of several in turn, the first of which all ranks begin together."""
    _together(ring)
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - begin) / calls


def _product(ring: rc.Ring, gemm: Gemm | None, dtype: str, taken: Taken) -> float:
    """Products on all cores of all ranks at a time; how long they took here."""
    _together(ring)
    if gemm is None:
        return 0.0
    taken.gemm.append(gemm.seconds(dtype))
    return taken.gemm[-1]


def _together(ring: rc.Ring) -> None:
    """Nobody goes on before all are here, and their threads are at rest."""
    time.sleep(PAUSE)
    ring.transport.allgather_bytes(b"", ring.timeout)


def _told(ring: rc.Ring, note: Any) -> list[Any]:
    """Everybody's note, in rank order. Collective."""
    return [json.loads(x) for x in ring.transport.allgather_bytes(json.dumps(note).encode(), ring.timeout)]


def _all_right(ring: rc.Ring, mine: list[str]) -> None:
    for rank, texts in enumerate(_told(ring, mine)):
        if texts:
            where = f" (on rank {rank} of {ring.size})" if ring.size > 1 else ""
            raise Wrong("; ".join(texts) + where)
