"""Pytest under mpirun, where each rank is a pytest of its own: from its start to the end of collection.

It waits to see whether any test uses the ranks. If so, it finds the other processes, sees to it that all have
collected the same, and `ringcore.testing.together` takes over.
"""

from __future__ import annotations

import faulthandler
import hashlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ringcore import registry
from ringcore.launcher import Launch
from ringcore.ring import Ring
from ringcore.testing.meeting import meet
from ringcore.testing.seeds import new_seed
from ringcore.testing.together import TOGETHER, Together, shout

_START_SECONDS = 60.0
"""A rank may come so late to the end of collection, however short the tests' own timeout is."""


class Processes:
    """From the start of a pytest under mpirun to the end of collection.

    Parameters
    ----------
    config : pytest.Config
    launch : Launch
    uses_ranks : callable
        Whether a test uses the fixtures of this plug-in.
    timeout : float
        Seconds to wait for other ranks.
    """

    def __init__(
        self, config: pytest.Config, launch: Launch, uses_ranks: Callable[[Any], bool], timeout: float
    ) -> None:
        self._launch, self._uses_ranks, self._timeout = launch, uses_ranks, timeout
        self._quiet = Quiet(config) if launch.rank > 0 else None
        self._wanted = False
        self._failed: list[str] = []
        self._lines: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what could not be collected: the other ranks may not have met that."""
        if report.failed:
            self._failed.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests for another number of ranks."""
        self._wanted = any(map(self._uses_ranks, items))
        if self._launch.size == 1:  # threads can be the others
            return
        left_out = [item for item in items if _size(item) not in (None, self._launch.size)]
        if left_out:
            items[:] = [item for item in items if item not in left_out]
            config.hook.pytest_deselected(items=left_out)
            self._lines.append(f"deselected, as they are for other numbers of ranks: {len(left_out)}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find the other ranks, if any test is for them."""
        if self._wanted and self._quiet is not None:
            self._quiet.drop()
        if self._wanted and not session.config.option.collectonly:
            try:
                self._join(session)
            except pytest.UsageError:
                if self._launch.rank > 0:  # pytest would print it on every rank
                    raise pytest.UsageError from None
                raise

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say on how many ranks this runs, and how to repeat what was drawn."""
        return [f"ringcore: {line}" for line in self._lines]

    def pytest_unconfigure(self) -> None:
        """Say what there was to be said if the processes never met."""
        if self._quiet is not None:
            self._quiet.speak()

    def pytest_internalerror(self, excrepr: object) -> None:
        """Nobody else would show it."""
        if self._launch.rank > 0:
            shout(self._launch.rank, f"INTERNALERROR\n{excrepr}")

    def _join(self, session: pytest.Session) -> None:
        config, launch = session.config, self._launch
        start = max(self._timeout, _START_SECONDS)
        try:
            ring = _of_all_ranks_or_exit_after(start)
            # Verdicts must get through where the tests' own ring has broken.
            office = Ring(ring.transport.comm.Dup(), timeout=start)  # type: ignore[attr-defined]
        except ImportError as error:
            if launch.size == 1:
                return  # it is alone, and needs no MPI
            raise pytest.UsageError(
                f"{launch.launcher} has started {launch.size} processes, which need mpi4py to meet: {error}. "
                "Run: pip install 'ringcore[mpi]'"
            ) from error
        except RuntimeError as error:  # no MPI library, or that of another launcher
            raise pytest.UsageError(str(error)) from error
        ids = [item.nodeid for item in session.items]
        seed = _seed(session)
        mine = [hashlib.blake2b("\n".join(ids).encode(), digest_size=8).hexdigest(), self._failed, seed]
        notes = [come.note for come in meet(office, "the end of collection", mine)]
        _check_failed([failed for _, failed, _ in notes])
        if len({held for held, _, _ in notes}) > 1:
            _check_same([come.note for come in meet(office, "the comparison of tests", ids)])
        _draw_from(notes[0][2])
        if launch.rank > 0:
            _write_no_files(config)
        ring, office = (Ring(each.transport, timeout=self._timeout) for each in (ring, office))
        together = Together(session, ring, office, self._uses_ranks)
        config.pluginmanager.register(together, TOGETHER)
        self._lines.insert(0, f"{ring.size} ranks, started by {launch.launcher}; rank 0 reports for all")
        if notes[0][2] is not None:
            self._lines.append(f"hypothesis draws the same on all ranks: --hypothesis-seed={notes[0][2]}")


class Quiet:
    """What pytest prints on a rank other than 0: kept back until it is known whether it is wanted."""

    def __init__(self, config: pytest.Config) -> None:
        self._writer: Any = config.get_terminal_writer()
        self._file = self._writer._file
        self._kept: io.StringIO | None = io.StringIO()
        self._writer._file = self._kept

    def drop(self) -> None:
        """Rank 0 speaks for this one."""
        self._kept = None
        self._writer._file = Nowhere()

    def speak(self) -> None:
        """Print what was kept back, and from now on everything."""
        if self._kept is not None:
            self._writer._file = self._file
            self._file.write(self._kept.getvalue())
            self._file.flush()
            self._kept = None


class Nowhere(io.TextIOBase):
    """A file that keeps nothing."""

    def write(self, text: str) -> int:
        """Forget it."""
        return len(text)


def _of_all_ranks_or_exit_after(seconds: float) -> Ring:
    """The ring of all ranks. MPI itself would wait for ever for one that ends before it has started MPI."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=2)
    try:
        return Ring(registry.world_transport(seconds), timeout=seconds)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _size(item: pytest.Item) -> int | None:
    """The number of ranks that a test is for; None if any will do."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.get_closest_marker("ranks") is None:
        return None
    size = callspec.params.get("ring")
    return size if isinstance(size, int) else None


def _check_failed(failed: list[list[str]]) -> None:
    """Where collection failed on some ranks only, those would stop and the others wait for them."""
    if all(failed) or not any(failed):
        return
    rank = next(rank for rank, texts in enumerate(failed) if texts)
    raise pytest.UsageError(
        f"all ranks must collect the same tests. On rank {rank} of {len(failed)} this failed:\n"
        + "\n".join(failed[rank])
    )


def _check_same(collected: list[list[str]]) -> None:
    for rank, ids in enumerate(collected):
        for here, there in zip([*collected[0], "nothing"], [*ids, "nothing"], strict=False):
            if here != there:
                raise pytest.UsageError(
                    f"all ranks must collect the same tests in the same order. Rank 0 has {here} where rank "
                    f"{rank} of {len(collected)} has {there}. Look for a parameter that depends on the rank, "
                    "or a random order: -p no:randomly, or a seed for it."
                )


def _seed(session: pytest.Session) -> int | None:
    """A seed for the properties, if they need one: there are any, and the user has settled nothing."""
    properties = any(
        getattr(getattr(item, "obj", None), "is_hypothesis_test", False) for item in session.items
    )
    if not properties or session.config.getoption("--hypothesis-seed", default=None) is not None:
        return None
    return None if sys.modules["hypothesis"].settings().derandomize else new_seed()


def _draw_from(seed: int | None) -> None:
    """As the option ``--hypothesis-seed`` does."""
    if seed is not None and "hypothesis.core" in sys.modules:
        sys.modules["hypothesis.core"].global_force_seed = seed  # type: ignore[attr-defined]


def _write_no_files(config: pytest.Config) -> None:
    """Several ranks would write the same files of one folder: the cache, and JUnit's report."""
    cache: Any = getattr(config, "cache", None)
    if cache is not None:
        cache.set = lambda key, value: None
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "LogXML":
            plugin.logfile = os.devnull
