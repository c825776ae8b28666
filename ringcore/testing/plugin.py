"""Pytest plug-in: fixtures ``ring`` and ``ranks``, and ``@pytest.mark.ranks(1, 2, 3)``.

Every pytest run of an environment loads this file, so that it imports nothing of its own before a test asks
for it.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ringcore.ring import Ring


class _PerRank:
    """Stands for ``ring`` until the test runs on its ranks: each of them has one of its own."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"ring.{name} is known only where the test runs: each of {self._size} ranks has its own ring. "
            "Use ring in the test function, not in a fixture."
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option ``ring_timeout``."""
    parser.addini(
        "ring_timeout",
        "seconds that a rank of the fixtures ring and ranks waits for another one",
        default="60",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker ``ranks``."""
    config.addinivalue_line(
        "markers",
        "ranks(*sizes): run the test once for each size, on that many ranks (threads of this process); "
        "the body runs on every rank, with a ring fixture of its own.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each size that ``@pytest.mark.ranks`` names."""
    marker = metafunc.definition.get_closest_marker("ranks")
    if marker is None:
        return
    sizes = marker.args
    if not sizes or not all(type(n) is int and n >= 1 for n in sizes) or marker.kwargs:
        raise pytest.UsageError(
            f"ranks must be given numbers of ranks, such as ranks(1, 2, 3). Got {marker.args}."
        )
    if "ring" not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: a test marked ranks{sizes} must take the fixture ring. "
            "Add the argument ring, or remove the mark."
        )
    metafunc.parametrize("ring", sizes, indirect=True, ids=[f"P{n}" for n in sizes], scope="function")


@pytest.fixture(scope="session")
def ring(request: pytest.FixtureRequest) -> Any:
    """A `ringcore.Ring`: of one rank, or this rank's in a test marked ``ranks(...)``.

    Override it in a conftest.py to run the same tests on another ring, for instance
    ``ringcore.Ring(MPI.COMM_WORLD)``.
    """
    size = getattr(request, "param", 1)
    if size > 1:
        return _PerRank(size)
    import ringcore

    return ringcore.Ring(timeout=_timeout(request.config))


@pytest.fixture(scope="session")
def ranks(pytestconfig: pytest.Config) -> Callable[..., list[Any]]:
    """``ranks(P, fn, *args)`` calls ``fn(ring, *args)`` on P ranks and returns what each of them returned.

    `ringcore.run_ranks` with a timeout fit for tests (ini option ``ring_timeout``, 60 s).
    """

    def run(size: int, fn: Callable[..., Any], *args: Any) -> list[Any]:
        import ringcore

        return ringcore.run_ranks(size, fn, *args, timeout=_timeout(pytestconfig))

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the body of a test marked ``ranks`` on every rank; a property's examples are drawn once for all."""
    placeholder = pyfuncitem.funcargs.get("ring")
    if not isinstance(placeholder, _PerRank):
        return None
    test = pyfuncitem.obj
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    spread = functools.partial(_spread, size=placeholder._size, timeout=_timeout(pyfuncitem.config))
    if getattr(test, "is_hypothesis_test", False):
        handle = test.hypothesis
        body = handle.inner_test
        handle.inner_test = spread(body)
        try:
            test(**arguments)
        finally:
            handle.inner_test = body
    else:
        spread(test)(**arguments)
    return True


def _spread(test: Callable[..., Any], size: int, timeout: float) -> Callable[..., None]:
    """The test as a function that runs it on ``size`` ranks."""

    @functools.wraps(test)
    def on_all_ranks(*args: Any, **kwargs: Any) -> None:
        import ringcore

        def on_rank(ring: Ring) -> None:
            _check_ran(test, test(*args, **{**kwargs, "ring": ring}))

        ringcore.run_ranks(size, on_rank, timeout=timeout)

    return on_all_ranks


def _check_ran(test: Callable[..., Any], returned: object) -> None:
    """A coroutine or generator has not begun to run when the call returns: it must not count as passed."""
    if isinstance(returned, Awaitable | AsyncIterable | Generator):
        close = getattr(returned, "close", None)
        if close is not None:
            close()  # nor warn that it was never awaited
        raise TypeError(
            f"{test.__name__}: a test marked ranks must be a plain function. Got one that returns a "
            f"{type(returned).__name__}, which nobody would run. Run it in the body: asyncio.run(...)."
        )


def _timeout(config: pytest.Config) -> float:
    return float(config.getini("ring_timeout"))
