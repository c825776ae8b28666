"""Property tests whose ranks are processes of their own: all ranks pass, fail and shrink together.

Under ``mpirun`` every rank runs hypothesis itself. That works while all ranks draw the same examples and
judge them alike: one seed for all (`lockstep_settings`), and one verdict for all (`lockstep`). Without the
second, a rank whose assertion fails goes on to shrink while the others wait for it in the next collective
call.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ringcore.errors import PeerFailed, PeerTimeout, RingError
from ringcore.ring import Ring
from ringcore.testing.contents import digest
from ringcore.testing.meeting import VERDICT, Come, is_consequence, meet

P = ParamSpec("P")
T = TypeVar("T")

PASSED, FAILED, REJECTED, LEFT = "passed", "failed", "rejected", "left"


class LockstepFailure(AssertionError):
    """The body failed on some rank; raised on every rank, with the same text and from the same line.

    On the ranks where it failed, ``__cause__`` is the exception itself.
    """


class LockstepDivergence(BaseException):
    """The ranks are not in step: they drew different examples, or one left. Nothing can be shrunk.

    Not an `Exception`, so that hypothesis ends at once instead of shrinking further out of step.
    """


def lockstep(ring: Ring) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate the body of a property test so that all ranks of a ring come to the same verdict. Collective.

    Goes directly on the function, under ``@given``. After each example the ranks exchange their verdicts, and
    digests of what they drew.

    Parameters
    ----------
    ring : Ring
        Of any transport. Waiting for a rank that does not come ends with its ``timeout``.

    Returns
    -------
    decorator
        The decorated function raises `LockstepFailure` on every rank if it failed on any, rejects the
        example on every rank if any rejected it (``hypothesis.assume``), and raises `LockstepDivergence` if
        the ranks drew different examples or are at different ones, or if the transport itself broke within
        the body.

    Notes
    -----
    A rank whose body fails between two collective calls keeps nobody waiting: the others' next call fails,
    and the failure names the first rank only.

    Examples
    --------
    >>> import ringcore as rc
    >>> from hypothesis import given, strategies as st
    >>> from ringcore.testing import lockstep, lockstep_settings
    >>> def on_rank(ring):
    ...     @lockstep_settings(ring, seed=1, max_examples=20)
    ...     @given(n=st.integers(0, 1000))
    ...     @lockstep(ring)
    ...     def body(n):
    ...         assert n < 17 or ring.rank != 1
    ...     body()
    >>> rc.run_ranks(2, on_rank)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ringcore.testing.verdicts.LockstepFailure: failed on rank 1 of 2.
    rank 1: AssertionError
    ...
    """

    def decorate(body: Callable[P, T]) -> Callable[P, T]:
        judge = Judge(ring, getattr(body, "__qualname__", repr(body)))

        @functools.wraps(body)
        def in_step(*args: P.args, **kwargs: P.kwargs) -> T:
            __tracebackhide__ = True
            return judge(functools.partial(body, *args, **kwargs), args, kwargs)

        return in_step

    return decorate


class Judge:
    """Brings all ranks to one verdict on each example of a body.

    Parameters
    ----------
    ring : Ring
    name : str
        Of the body, as in messages.
    """

    def __init__(self, ring: Ring, name: str) -> None:
        self._ring, self._name = ring, name
        self._example = itertools.count()

    def __call__(self, call: Callable[[], T], *drawn: Any) -> T:
        """What ``call`` returns on this rank, if it passes on all; ``drawn`` must be equal on all."""
        __tracebackhide__ = True
        ring, example = self._ring, f"{self._name} #{next(self._example)}"
        held, value, error = digest(*drawn), None, None
        try:
            value = call()
        except BaseException as raised:
            error = raised
        # Outside the handler: hypothesis tells failures apart by __context__, which must not differ.
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        if isinstance(error, PeerFailed | PeerTimeout):
            raise _broken(example, ring, error) from error
        mine = Verdict(
            held, _choices(), _outcome(error), type(error).__name__, str(error), is_consequence(error)
        )
        try:
            come = meet(ring, f"{VERDICT} {example}", mine)
        except RingError as broken:
            raise _broken(example, ring, broken) from (error or broken)
        verdicts = _in_step(come)
        if mine.outcome == LEFT and error is not None:
            raise error
        failed = [rank for rank, verdict in enumerate(verdicts) if verdict.outcome == FAILED]
        if failed:
            raise LockstepFailure(_message(failed, verdicts)) from error
        if any(verdict.outcome == REJECTED for verdict in verdicts):
            _reject()
        return value  # type: ignore[return-value]


class Verdict(NamedTuple):
    """What one rank tells the others about one example.

    Attributes
    ----------
    drawn : str
        Digest of what it was called with.
    choices : str
        Digest of all that was drawn, in the body, too.
    outcome : str
    error, text : str
        Type and text of what the body raised.
    follows : bool
        Whether that only says that another rank has failed.
    """

    drawn: str
    choices: str
    outcome: str
    error: str
    text: str
    follows: bool


def _choices() -> str:
    """All that hypothesis has drawn for this example; empty outside it, or where that cannot be had."""
    from hypothesis import control, currently_in_test_context

    if not currently_in_test_context():
        return ""
    return digest(*getattr(control.current_build_context().data, "choices", ()))


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return PASSED
    from hypothesis.errors import UnsatisfiedAssumption

    if isinstance(error, UnsatisfiedAssumption):
        return REJECTED
    # What is no Exception is hypothesis' control flow, or a skip.
    return FAILED if isinstance(error, Exception) else LEFT


def _in_step(come: list[Come]) -> list[Verdict]:
    """Every rank's verdict: all are at the same example, and either none or all leave it in the same way."""
    example = come[0].place
    for rank, (place, _) in enumerate(come):
        if place != example:
            raise LockstepDivergence(
                f"all ranks must be at the same example. Rank 0 is at {example}, rank {rank} at {place}. "
                "Apply lockstep_settings(ring), and skip no example on one rank only."
            )
    verdicts = [Verdict(*note) for _, note in come]
    first = verdicts[0]
    name = example.removeprefix(f"{VERDICT} ")
    for rank, verdict in enumerate(verdicts):
        if verdict.drawn != first.drawn:
            raise LockstepDivergence(
                f"all ranks must draw the same example. In {name} rank 0 drew {first.drawn}, "
                f"rank {rank} {verdict.drawn} (digests). Apply lockstep_settings(ring), draw nothing that "
                "depends on the rank, and import your modules on all ranks: hypothesis draws constants that "
                "it finds in them."
            )
        if verdict.choices != first.choices and all(each.outcome == PASSED for each in verdicts):
            raise LockstepDivergence(
                f"all ranks must draw the same in the body. In {name} rank {rank} has drawn otherwise than "
                "rank 0 from st.data(). Draw nothing that depends on the rank."
            )
        both = (first.outcome, verdict.outcome)
        if LEFT in both and (both != (LEFT, LEFT) or first.error != verdict.error):
            raise LockstepDivergence(
                f"all ranks must leave {name} alike. Rank 0 {first.outcome} ({first.error}), "
                f"rank {rank} {verdict.outcome} ({verdict.error})."
            )
    return verdicts


def _message(failed: list[int], verdicts: list[Verdict]) -> str:
    failed = [rank for rank in failed if not verdicts[rank].follows] or failed
    lines = [f"failed on rank {', '.join(map(str, failed))} of {len(verdicts)}."]
    for rank in failed:
        error, text = verdicts[rank].error, verdicts[rank].text
        lines.append(f"rank {rank}: {error}: {text}" if text else f"rank {rank}: {error}")
    return "\n".join(lines)


def _broken(example: str, ring: Ring, error: BaseException) -> LockstepDivergence:
    return LockstepDivergence(
        f"the ring broke within {example} on rank {ring.rank}: {type(error).__name__}: {error}"
    )


def _reject() -> None:
    import hypothesis

    hypothesis.reject()
