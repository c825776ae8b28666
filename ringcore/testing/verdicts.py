"""Property tests whose ranks are processes of their own: all ranks pass, fail and shrink together.

Under ``mpirun`` every rank runs hypothesis itself. That works while all ranks draw the same examples and
judge them alike: one seed for all (`lockstep_settings`), and one verdict for all (`lockstep`). Without the
second, a rank whose assertion fails goes on to shrink while the others wait for it in the next collective
call.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import re
import secrets
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from ringcore.errors import PeerFailed, PeerTimeout
from ringcore.ring import Ring
from ringcore.testing.arrays import to_numpy

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

    Examples
    --------
    >>> import ringcore as rc
    >>> from hypothesis import given, strategies as st
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
        example = itertools.count()
        name = getattr(body, "__qualname__", repr(body))

        @functools.wraps(body)
        def in_step(*args: P.args, **kwargs: P.kwargs) -> T:
            here, drawn = f"{name} #{next(example)}", digest(args, kwargs)
            value, error = None, None
            try:
                value = body(*args, **kwargs)
            except BaseException as raised:
                error = raised
            # Outside the handler: hypothesis tells failures apart by __context__, which must not differ.
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise error
            if isinstance(error, PeerFailed | PeerTimeout):
                raise LockstepDivergence(
                    f"the ring broke within {here} on rank {ring.rank}: {type(error).__name__}: {error}"
                ) from error
            mine = _Verdict(here, drawn, _outcome(error), type(error).__name__, str(error))
            verdicts = [_Verdict(*fields) for fields in _gather(ring, mine)]
            _check_in_step(verdicts)
            if mine.outcome == LEFT and error is not None:
                raise error
            failed = [rank for rank, verdict in enumerate(verdicts) if verdict.outcome == FAILED]
            if failed:
                raise LockstepFailure(_message(failed, verdicts)) from error
            if any(verdict.outcome == REJECTED for verdict in verdicts):
                _reject()
            return value  # type: ignore[return-value]

        return in_step

    return decorate


def lockstep_settings(ring: Ring, *, seed: int | None = None, **options: Any) -> Callable[[T], T]:
    """Settings under which all ranks draw the same examples; goes on top of ``@given``. Collective.

    The seed is rank 0's, printed there; no database, which ranks would read at different times; no
    deadline, no health check on slowness and no explain phase, which depend on each rank's clock.

    Parameters
    ----------
    ring : Ring
    seed : int, optional
        To repeat a run; drawn afresh by rank 0 if not given.
    **options
        Further hypothesis settings, such as ``max_examples``.

    Raises
    ------
    ModuleNotFoundError
        If hypothesis is not installed.
    """
    import hypothesis

    mine = secrets.randbits(32) if seed is None else seed
    shared = int(_gather(ring, mine)[0])
    if ring.rank == 0 and seed is None:
        print(  # noqa: T201 - a run that fails under mpirun is repeated with it
            f"hypothesis in lockstep on {ring.size} ranks: lockstep_settings(ring, seed={shared})"
        )
    skipped = (hypothesis.Phase.explain, hypothesis.Phase.reuse)
    common: dict[str, Any] = {
        "database": None,
        "deadline": None,
        "phases": [phase for phase in hypothesis.Phase if phase not in skipped],
        "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    }
    chosen = hypothesis.settings(**{**common, **options})

    def decorate(test: T) -> T:
        return hypothesis.seed(shared)(chosen(test))  # type: ignore[type-var]

    return decorate


def digest(*things: Any) -> str:
    """A short text that is equal on all ranks for equal values: of arrays by content, of rings by size.

    Functions and classes go by name. Whatever shows its address instead of its content goes by what pickle
    would keep of it, so that other processes come to the same digest.

    Raises
    ------
    TypeError
        If an object has no content that processes could compare (a lock, an open file, a running
        generator), or holds itself.

    Examples
    --------
    >>> import numpy as np
    >>> digest([np.zeros(2), {"a": 1}]) == digest([np.zeros(2), {"a": 1}])
    True
    >>> digest(np.zeros(2)) == digest(np.zeros(3))
    False
    """
    try:
        text = _canonical(things)
    except RecursionError:
        raise TypeError(_NO_CONTENT.format("something that holds itself")) from None
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


_NO_CONTENT = (
    "what a test in lockstep is called with must have a content that ranks can compare: values, or objects "
    "that pickle takes. Got {}. Make it in the body, or let the body be a closure over it."
)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PRIMITIVE = (str, bytes, bytearray, int, float, complex, type(None))


def _canonical(x: Any) -> str:
    kind = type(x).__qualname__
    if type(x) in _PRIMITIVE:
        return f"{kind}:{x!r}"
    if isinstance(x, Ring):
        return f"Ring of {x.size}"
    if isinstance(x, types.ModuleType):
        return x.__name__
    if isinstance(x, type | types.FunctionType):
        return f"{x.__module__}.{x.__qualname__}"
    if dataclasses.is_dataclass(x):
        parts = [f"{f.name}={_canonical(getattr(x, f.name))}" for f in dataclasses.fields(x)]
        return f"{kind}({','.join(parts)})"
    if isinstance(x, Mapping):
        return f"{kind}{{{','.join(f'{_canonical(a)}:{_canonical(b)}' for a, b in x.items())}}}"
    if isinstance(x, set | frozenset):
        return f"{kind}{{{','.join(sorted(map(_canonical, x)))}}}"
    if isinstance(x, tuple | list):
        return f"{kind}[{','.join(map(_canonical, x))}]"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        values = to_numpy(x)
        held = _canonical(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
        return f"{kind}{tuple(x.shape)}{x.dtype}{hashlib.blake2b(held, digest_size=8).hexdigest()}"
    shown = repr(x)
    return f"{kind}{_reduced(x)}" if _ADDRESS.search(shown) else f"{kind}:{shown}"


def _reduced(x: Any) -> str:
    """The parts that pickle would make an object from, one of whose reprs shows an address."""
    try:
        parts = x.__reduce_ex__(4)
    except Exception as error:
        raise TypeError(_NO_CONTENT.format(f"{x!r} ({error})")) from error
    if isinstance(parts, str):  # the name of something global
        return f"{getattr(x, '__module__', None)}.{parts}"
    return _canonical([list(part) if isinstance(part, Iterator) else part for part in parts])


def _gather(ring: Ring, value: Any) -> list[Any]:
    return [
        json.loads(note) for note in ring.transport.allgather_bytes(json.dumps(value).encode(), ring.timeout)
    ]


class _Verdict(NamedTuple):
    """What one rank tells the others about one example."""

    example: str
    drawn: str
    outcome: str
    error: str
    text: str


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return PASSED
    from hypothesis.errors import UnsatisfiedAssumption

    if isinstance(error, UnsatisfiedAssumption):
        return REJECTED
    # What is no Exception is hypothesis' control flow, or a skip.
    return FAILED if isinstance(error, Exception) else LEFT


def _check_in_step(verdicts: list[_Verdict]) -> None:
    """Every rank is at the same example, and either none or all of them leave it in the same way."""
    first = verdicts[0]
    for rank, verdict in enumerate(verdicts):
        if verdict.example != first.example:
            raise LockstepDivergence(
                f"all ranks must be at the same example. Rank 0 is at {first.example}, rank {rank} at "
                f"{verdict.example}. Apply lockstep_settings(ring), and skip no example on one rank only."
            )
        if verdict.drawn != first.drawn:
            raise LockstepDivergence(
                f"all ranks must draw the same example. In {first.example} rank 0 drew {first.drawn}, "
                f"rank {rank} {verdict.drawn} (digests). Apply lockstep_settings(ring), and draw nothing "
                "that depends on the rank."
            )
        both = (first.outcome, verdict.outcome)
        if LEFT in both and (both != (LEFT, LEFT) or first.error != verdict.error):
            raise LockstepDivergence(
                f"all ranks must leave {first.example} alike. Rank 0 {first.outcome} ({first.error}), "
                f"rank {rank} {verdict.outcome} ({verdict.error})."
            )


def _message(failed: list[int], verdicts: list[_Verdict]) -> str:
    lines = [f"failed on rank {', '.join(map(str, failed))} of {len(verdicts)}."]
    for rank in failed:
        error, text = verdicts[rank].error, verdicts[rank].text
        lines.append(f"rank {rank}: {error}: {text}" if text else f"rank {rank}: {error}")
    return "\n".join(lines)


def _reject() -> None:
    import hypothesis

    hypothesis.reject()
