"""All rows, on the ranks of a ring or on threads; an error in one row is that row's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import ringcore as rc
from ringcore.agree import is_agreed
from ringcore.cli.bench.figures import Figures
from ringcore.cli.bench.gemm import Gemm
from ringcore.cli.bench.measure import How, Wrong, measure
from ringcore.cli.bench.rows import Row
from ringcore.errors import PeerFailed

Tell = Callable[[Row, int, int], None]
"""Gets the row that is at work, how many of its loops are done, and of how many."""


@dataclass(frozen=True)
class Outcome:
    """What has come of a row.

    Attributes
    ----------
    row : Row
    figures : Figures or None
    fault : str
        Why there are none.
    stops : bool
        Whether the ring is of no use afterwards.
    caused_here : bool
        Whether this rank has the cause of that.
    """

    row: Row
    figures: Figures | None = None
    fault: str = ""
    stops: bool = False
    caused_here: bool = False


def on_threads(
    ranks: int, rows: Sequence[Row], how: How, gemm: Gemm, tell: Tell, *, timeout: float
) -> Iterator[Outcome]:
    """Outcomes on ranks that are threads of this process: a new ring for each row."""

    def on_each_rank(ring: rc.Ring, row: Row) -> Figures:
        if ring.rank > 0:
            return measure(ring, row, how, None)
        return measure(ring, row, how, gemm, lambda done, of: tell(row, done, of))

    for row in rows:
        tell(row, 0, 0)
        try:
            found = rc.run_ranks(ranks, on_each_rank, row, timeout=timeout)
        except Exception as error:
            yield Outcome(row, fault=_said(error))
        else:
            yield Outcome(row, found[0])


def on_ring(ring: rc.Ring, rows: Sequence[Row], how: How, gemm: Gemm, tell: Tell) -> Iterator[Outcome]:
    """Outcomes on the ranks of a ring. Collective.

    An error that all ranks have is the row's, and the next one follows. One that a rank has alone breaks the
    ring: the outcome says so on every rank, and is the last.
    """
    for row in rows:
        tell(row, 0, 0)
        try:
            found = measure(ring, row, how, gemm, lambda done, of, row=row: tell(row, done, of))  # type: ignore[misc]
        except Wrong as error:
            yield Outcome(row, fault=_said(error))
        except Exception as error:
            if ring.size == 1:
                yield Outcome(row, fault=_said(error))
                continue
            if not is_agreed(error, ring.transport):  # whoever waits for this rank need not
                ring.transport.give_up(error)
            here = not isinstance(error, PeerFailed)
            yield Outcome(row, fault=f"{_said(error)} (on rank {ring.rank})", stops=True, caused_here=here)
            return
        else:
            yield Outcome(row, found)


def _said(error: Exception) -> str:
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", []) if not isinstance(error, Wrong))
    text = f"{error}" if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
    return " ".join((text + notes).split())
