"""Attention problems for the tests of the contract, over every array library and every kernel."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from ringcore_numpy import NumpyBackend

import ringcore as rc
from ringcore.block import GenericBackend
from ringcore.testing import Call, DrawnMask, Poison, Problem, Results, round_to, solve
from ringcore.testing.problem import Shards
from ringcore.testing.strategies import attention_problems
from tests.libraries import LIBRARIES, Library
from tests.profiles import examples, for_library

Values = dict[str, npt.NDArray[np.float64]]
FEW = ("numpy", "array-api-strict", "torch")
"""Libraries that cost nothing to start with a new shape; JAX compiles every operation for it."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Changed(Problem):
    """A problem whose values are not the normal distribution's, or whose shards cannot be written to.

    Attributes
    ----------
    change : callable, optional
        Gets the drawn values by name and alters them in place.
    readonly : bool
        NumPy only: every shard is read-only.
    """

    change: Callable[[Values], None] | None = None
    readonly: bool = False

    @cached_property
    def values(self) -> Values:
        made = {name: np.array(x) for name, x in super().values.items()}
        if self.change is not None:
            self.change(made)
        return {name: round_to(x, self.dtype) if name != "dlse" else x for name, x in made.items()}

    def shards(self, rank: int) -> Shards:
        parts = super().shards(rank)
        if self.readonly:
            for part in parts:
                if part is not None:
                    part.flags.writeable = False
        return parts


def variant(problem: Problem, **changes: Any) -> Changed:
    """The same problem with other fields; what does not depend on them is not computed again."""
    given_fields = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
    made = Changed(**{**given_fields, **changes})
    if set(changes) <= {"q_layout", "k_layout", "side", "way", "tile", "readonly"}:
        for name in ("values", "visible", "reference", "conditions", "dense", "may_be_nonfinite"):
            if name in problem.__dict__:
                made.__dict__[name] = problem.__dict__[name]
    return made


def plain_numpy(tile: tuple[int, int] | None = None) -> NumpyBackend:
    """The kernels in NumPy alone; `NumpyBackend` takes the compiled ones where there are any."""
    return NumpyBackend(tile, compiled=False)


NUMPY_KERNELS = (NumpyBackend, GenericBackend, plain_numpy)


def kernels(library: Library | str) -> tuple[Any, ...]:
    """The backends that compute with a library's arrays: to be called with or without a tile."""
    name = library if isinstance(library, str) else library.name
    return NUMPY_KERNELS if name.startswith("numpy") else (GenericBackend,)


def layouts_of(length: int, ranks: int) -> list[rc.Layout]:
    """One layout of each kind, the uneven one with an empty rank where there are two or more."""
    heavy = [0] * (ranks - 1) + [length] if ranks < 3 else [1, 0, *[0] * (ranks - 3), length - 1]
    uneven = [rc.Layout.from_lengths(heavy)] if length > 0 and ranks > 1 else []
    return [
        rc.Layout.contiguous(length=length, ranks=ranks),
        rc.Layout.zigzag(length=length, ranks=ranks),
        rc.Layout.striped(length=length, ranks=ranks),
        rc.Layout.striped(length=length, ranks=ranks, block=3),
        *uneven,
    ]


CHOICES = [(side, way) for side in ("kv", "q") for way in ("ring", "direct")]


# ------------------------------------------------------------------ properties


def for_all(
    library: Library, problems: st.SearchStrategy[Any], check: Callable[[Any], None], count: int
) -> Counter[str]:
    """Run a check on a library's share of examples; count the hard cases among them."""
    counted: Counter[str] = Counter()

    @settings(max_examples=examples(count))
    @given(problems)
    def each(problem: Any) -> None:
        one = problem[0] if isinstance(problem, tuple) else problem
        counted.update(one.events())
        check(problem)

    with for_library(each, library.name):
        each()
    return counted


def problems(library: Library, **options: Any) -> st.SearchStrategy[Problem]:
    """Problems of a library, of any shape; on JAX one of eight fixed ones."""
    if library.name == "jax":
        poison = options.get("poison", False)
        return st.sampled_from([dataclasses.replace(p, poison=p.poison if poison else None) for p in JAX])
    drawn = attention_problems(library.xp, **options)
    if library.name == "numpy-readonly":
        return drawn.map(lambda problem: variant(problem, readonly=True))
    return drawn


def _jax_problems() -> Sequence[Problem]:
    """Four tokens on each rank that has any, so that all P share the operations that JAX has compiled."""
    xp = LIBRARIES["jax"]().xp
    causal, window = DrawnMask(Call("causal")), DrawnMask(Call("window", (1, 2)))
    hidden = DrawnMask(Call("documents", ((2, 0, 5),)))
    base = {"xp": xp, "heads": (2, 1), "dtype": "float32"}
    nan, inf = Poison("v", 5, np.nan), Poison("k", 9, np.inf)

    def contiguous(ranks: int) -> rc.Layout:
        return rc.Layout.contiguous(length=4 * ranks, ranks=ranks)

    holes = rc.Layout.from_lengths([4, 0, 4])
    return [
        Problem(q_layout=contiguous(1), mask=causal, **base),
        Problem(q_layout=contiguous(2), seed=1, side="kv", poison=nan, mask=causal, **base),
        Problem(q_layout=contiguous(3), seed=2, side="q", way="direct", mask=window, **base),
        Problem(q_layout=contiguous(5), seed=3, side="kv", mask=hidden, poison=inf, **base),
        Problem(q_layout=rc.Layout.zigzag(length=16, ranks=4), seed=4, side="q", mask=causal, **base),
        Problem(q_layout=rc.Layout.striped(length=32, ranks=8), seed=5, spread=100.0, **base),
        Problem(q_layout=contiguous(2), seed=6, mask=window, **{**base, "dtype": "float64"}),
        Problem(q_layout=holes, k_layout=contiguous(3), seed=7, mask=causal, side="kv", **base),
    ]


class _Lazy(Sequence[Problem]):
    """Made on first use: importing JAX takes a second."""

    @cached_property
    def _made(self) -> Sequence[Problem]:
        return _jax_problems()

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, index: Any) -> Any:
        return self._made[index]


JAX = _Lazy()


# ------------------------------------------------------------------ running


def whole(problem: Problem, kernel: Any = None) -> Results:
    """Solve a problem on its ranks; the results in global order, bit for bit, of the library's dtype."""
    return in_order(problem, solve(problem, backend=kernel))


def in_order(problem: Problem, results: Sequence[Results]) -> Results:
    """Every rank's results joined in global order, bit for bit, of the library's dtype."""

    def joined(name: str) -> Any:
        layout = problem.k_layout if name in ("dk", "dv") else problem.q_layout
        axis = -1 if name == "lse" else problem.seq_axis if problem.heads is not None else -2
        return layout.unshard([getattr(r, name) for r in results], axis=axis)

    return Results(*(joined(name) for name in Results._fields))


def bits(x: Any, library: Library) -> bytes:
    """The bytes of an array, so that NaN equals itself and 0.0 differs from -0.0."""
    return np.ascontiguousarray(library.numpy(x)).tobytes()


def on_every_rank(ranks: int, call: Callable[[rc.Ring], object]) -> list[tuple[Exception, int]]:
    """What a call raises on each rank, and how many messages with arrays each has sent."""

    def attempt(ring: rc.Ring) -> tuple[Exception, int]:
        try:
            result = call(ring)
        except Exception as error:
            return error, ring.traffic.messages
        raise AssertionError(f"rank {ring.rank} of {ring.size} must raise. Got {result!r}.")

    return rc.run_ranks(ranks, attempt, timeout=20.0)


def assert_same_error(raised: Iterable[tuple[Exception, int]], kind: type[Exception], *texts: str) -> None:
    """All ranks raised the same error of this kind before anything was sent; it says all of ``texts``."""
    errors, messages = zip(*raised, strict=True)
    assert {(type(e), str(e)) for e in errors} == {(kind, str(errors[0]))}
    for text in texts:
        assert text in str(errors[0])
    assert set(messages) == {0}
