"""Finding backends and transports: by table, by entry point, or not at all."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ringcore as rc
from ringcore import registry
from ringcore.block import GenericBackend
from ringcore.protocols import Backend, Transport
from tests.bare import BareTransport
from tests.libraries import Library


class Scans(list[tuple[str, str]]):
    """Stands in for `importlib.metadata.entry_points` and notes what is asked for."""

    def __init__(self, *known: EntryPoint) -> None:
        super().__init__()
        self.known = known

    def __call__(self, group: str, name: str) -> list[EntryPoint]:
        self.append((group, name))
        return [entry for entry in self.known if (entry.group, entry.name) == (group, name)]


@pytest.fixture
def scan(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a scan; what earlier calls have found is forgotten, and what this test finds too."""

    def install(*known: EntryPoint) -> Scans:
        scans = Scans(*known)
        monkeypatch.setattr(registry, "entry_points", scans)
        registry._backend.cache_clear()
        return scans

    yield install
    registry._backend.cache_clear()


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package of somebody else's, with an array, a communicator, a backend and a transport."""
    module = ModuleType("somebodys_arrays")
    for name in ("Array", "Comm"):
        setattr(module, name, type(name, (), {"__module__": "somebodys_arrays.deep.inside"}))
    module.backend = GenericBackend(name="somebody's")  # type: ignore[attr-defined]
    module.connect = lambda comm, timeout: (  # type: ignore[attr-defined]
        "transport for", comm, timeout
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "somebodys_arrays", module)
    return module


def test_built_in_names_are_found_without_a_scan(scan: Any) -> None:
    scans = scan()
    assert registry.backend_of(np.ones(1)).name == "numpy"
    assert registry.backend_of(np.float32(1)).name == "numpy"
    assert registry.transport_of(None).size == 1
    assert callable(registry.thread_runner())
    assert scans == [], "thousands of ranks would pay for it"


def test_backends_keep_the_protocol(xp: Library) -> None:
    backend = registry.backend_of(xp.asarray(np.ones(1)))
    assert isinstance(backend, Backend)
    assert isinstance(backend, GenericBackend) != xp.name.startswith("numpy")


def test_an_unknown_library_gets_the_generic_kernels_and_is_scanned_for_once(
    scan: Any, plugin: ModuleType
) -> None:
    scans = scan()
    assert registry.backend_of(plugin.Array()) == GenericBackend()
    registry.backend_of(plugin.Array())
    assert scans == [("ringcore.backends", "somebodys_arrays")]


def test_a_backend_is_found_by_the_top_level_module_of_the_arrays_type(scan: Any, plugin: ModuleType) -> None:
    scan(EntryPoint("somebodys_arrays", "somebodys_arrays:backend", "ringcore.backends"))
    assert registry.backend_of(plugin.Array()) is plugin.backend
    assert registry.backend_of(np.ones(1)).name == "numpy"


def test_a_transport_is_found_by_entry_point_and_called_with_the_communicator(
    scan: Any, plugin: ModuleType
) -> None:
    scan(EntryPoint("somebodys_arrays", "somebodys_arrays:connect", "ringcore.transports"))
    comm = plugin.Comm()
    assert registry.transport_of(comm) == ("transport for", comm, 600.0)


def test_a_transport_stands_for_itself() -> None:
    transport = registry.transport_of(None)
    assert registry.transport_of(transport) is transport
    assert rc.Ring(transport).transport is transport

    mine = BareTransport()
    assert isinstance(mine, Transport) and registry.transport_of(mine) is mine


def test_an_unknown_communicator_is_an_error_that_names_the_cure(scan: Any, plugin: ModuleType) -> None:
    scans = scan()
    with pytest.raises(TypeError) as caught:
        rc.Ring(plugin.Comm())
    for part in (
        "comm must be a communicator that ringcore has a transport for",
        "Got somebodys_arrays.deep.inside.Comm",
        "ringcore.run_ranks(P, fn)",
        "'ringcore.transports' entry point named 'somebodys_arrays'",
    ):
        assert part in str(caught.value)
    assert scans == [("ringcore.transports", "somebodys_arrays")]
    with pytest.raises(TypeError, match=r"Got builtins\.int"):
        rc.Ring(4)
    with pytest.raises(TypeError, match=r"Got builtins\.str"):
        rc.Ring("threads")
