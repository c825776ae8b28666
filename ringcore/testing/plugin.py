"""Pytest plug-in: fixtures ``ring`` and ``ranks``, and ``@pytest.mark.ranks(1, 2, 3)``.

Ranks are threads of the pytest process; under ``mpirun`` they are processes, see
`ringcore.testing.processes`. Every pytest run of an environment loads this file, so that it imports nothing
of its own before a test asks for it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterable, Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ringcore.ring import Ring


_RANK_VARIABLES = {
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
}
"""Those of `ringcore.launcher`, which only runs under a launcher import."""


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


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker ``ranks``; look for a launcher such as ``mpirun``."""
    config.addinivalue_line(
        "markers",
        "ranks(*sizes): run the test once for each size, on that many ranks (threads of this process; "
        "under mpirun its processes); the body runs on every rank, with a ring fixture of its own.",
    )
    if _RANK_VARIABLES & os.environ.keys():
        from ringcore.launcher import launched
        from ringcore.testing.processes import Processes

        launch = launched()
        if launch is not None:
            config.pluginmanager.register(Processes(config, launch, _uses_ranks, _timeout(config)))


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

    Under ``mpirun``: of ``MPI.COMM_WORLD``. Override it in a conftest.py to run the same tests on another.
    """
    world, size = _world(request.config), getattr(request, "param", None)
    if world is not None and size in (None, world.size):
        return world
    if size is not None and size > 1:
        return _PerRank(size)
    import ringcore

    return ringcore.Ring(timeout=_timeout(request.config))


@pytest.fixture(scope="session")
def ranks(pytestconfig: pytest.Config) -> Callable[..., list[Any]]:
    """``ranks(P, fn, *args)`` calls ``fn(ring, *args)`` on P ranks and returns what each of them returned.

    `ringcore.run_ranks` with a timeout fit for tests (ini option ``ring_timeout``, 60 s). Under ``mpirun``
    the ranks are its processes, and all of them get all results; the test is skipped if there are not P.
    """

    def run(size: int, fn: Callable[..., Any], *args: Any) -> list[Any]:
        world = _world(pytestconfig)
        if world is not None and size == world.size:
            from ringcore.testing.everywhere import call_everywhere

            return call_everywhere(world, fn, *args)
        if world is not None and world.size > 1:
            pytest.skip(f"ranks({size}, ...) must have {size} processes under mpirun. Got {world.size}.")
        import ringcore

        return ringcore.run_ranks(size, fn, *args, timeout=_timeout(pytestconfig))

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the body of a test marked ``ranks`` on every rank; a property's examples are drawn once for all."""
    ring, test = pyfuncitem.funcargs.get("ring"), pyfuncitem.obj
    is_property = getattr(test, "is_hypothesis_test", False)
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    if isinstance(ring, _PerRank):
        spread = functools.partial(_spread, size=ring._size, timeout=_timeout(pyfuncitem.config))
        if is_property:
            _with_body(test, spread)(**arguments)
        else:
            spread(test)(**arguments)
        return True
    if not is_property or _world(pyfuncitem.config) is None:
        return None
    from ringcore.ring import Ring
    from ringcore.testing.everywhere import in_step, with_lockstep_settings

    if not isinstance(ring, Ring):
        return None
    with with_lockstep_settings(test):
        _with_body(test, functools.partial(in_step, ring=ring, fixtures=arguments))(**arguments)
    return True


def _with_body(test: Any, change: Callable[[Any], Any]) -> Callable[..., None]:
    """A property with another body."""

    def run(**arguments: Any) -> None:
        handle = test.hypothesis
        body = handle.inner_test
        handle.inner_test = change(body)
        try:
            test(**arguments)
        finally:
            handle.inner_test = body

    return run


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


def _world(config: pytest.Config) -> Ring | None:
    """The ring of all processes under ``mpirun``; None where there are none."""
    together: Any = config.pluginmanager.get_plugin("ringcore-together")
    return None if together is None else together.ring


def _uses_ranks(item: Any) -> bool:
    """Whether a test uses the fixtures ``ring`` or ``ranks`` of this file, and not other ones so named."""
    info = getattr(item, "_fixtureinfo", None)
    known = {} if info is None else info.name2fixturedefs
    return any(_is_ours(name, known[name]) for name in ("ring", "ranks") if name in known)


def _is_ours(name: str, definitions: Sequence[Any]) -> bool:
    """Whether a fixture is defined here, or by something that builds on what is defined here."""
    for definition in reversed(definitions):
        if definition.func.__module__ == __name__:
            return True
        if name not in definition.argnames:
            return False
    return False


def _timeout(config: pytest.Config) -> float:
    return float(config.getini("ring_timeout"))
