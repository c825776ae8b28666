"""What the fixtures ``ring`` and ``ranks`` do where ranks are processes."""

from __future__ import annotations

import base64
import functools
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ringcore.ring import Ring
from ringcore.testing.meeting import VERDICT, check_places, is_consequence, meet
from ringcore.testing.seeds import in_lockstep
from ringcore.testing.verdicts import Judge, LockstepFailure

# Where hypothesis keeps the settings of a test; there is no public way to change those of one that has some.
_SETTINGS = "_hypothesis_internal_use_settings"


def in_step(body: Callable[..., Any], ring: Ring, fixtures: Mapping[str, Any]) -> Callable[..., Any]:
    """The body of a property in `ringcore.testing.lockstep`; fixtures are not drawn and may differ."""
    judge = Judge(ring, body.__qualname__)

    @functools.wraps(body)
    def on_rank(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        drawn = {name: value for name, value in kwargs.items() if name not in fixtures}
        return judge(functools.partial(body, *args, **kwargs), drawn)

    return on_rank


@contextmanager
def with_lockstep_settings(test: Any) -> Iterator[None]:
    """For a while a property, function or method, has settings that all ranks can keep."""
    import hypothesis

    test = getattr(test, "__func__", test)  # a method has no attributes of its own
    own = getattr(test, _SETTINGS, None)
    setattr(test, _SETTINGS, in_lockstep(own or hypothesis.settings()))
    try:
        yield
    finally:
        setattr(test, _SETTINGS, own)


def call_everywhere(ring: Ring, fn: Callable[..., Any], *args: Any) -> list[Any]:
    """What ``fn(ring, *args)`` returns on each rank, on all ranks. Collective.

    Raises
    ------
    Exception
        On every rank what the first rank to fail raised; a note names the rank. `LockstepFailure` if pickle
        does not take that.
    """
    error: BaseException | None = None
    try:
        outcome: tuple[str, Any] = ("returned", pickle.dumps(fn(ring, *args)))
    except Exception as raised:
        error, outcome = raised, ("followed" if is_consequence(raised) else "raised", _pickled(raised))
    mine = [outcome[0], base64.b64encode(outcome[1]).decode()]
    come = meet(ring, f"{VERDICT} {getattr(fn, '__qualname__', fn)}", mine)
    check_places(come)
    outcomes = [note[0] for _, note in come]
    for kind in ("raised", "followed"):
        if kind in outcomes:
            rank = outcomes.index(kind)
            first = error if rank == ring.rank and error is not None else _opened(come[rank].note)
            first.add_note(f"on rank {rank} of {ring.size}")
            raise first
    return [_opened(note) for _, note in come]


def _pickled(error: Exception) -> bytes:
    try:
        held = pickle.dumps(error)
        pickle.loads(held)  # some can be taken apart but not put together again
        return held
    except Exception:
        return pickle.dumps(LockstepFailure(f"{type(error).__name__}: {error}"))


def _opened(note: Any) -> Any:
    return pickle.loads(base64.b64decode(note[1]))
