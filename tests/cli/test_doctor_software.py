"""What is installed, against metadata that is made up, and against the source where it speaks of that."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import threadpoolctl
from ringcore_numpy import dispatch

from ringcore import registry
from ringcore.cli.doctor import blas, software
from ringcore.cli.doctor.finding import Finding

ROOT = Path(__file__).parents[2]


def by_name(found: object) -> dict[str, Finding]:
    return {finding.name: finding for finding in found}  # type: ignore[attr-defined]


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Distributions by name, in place of those installed; every module can be imported."""
    made_up: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in made_up:
            raise importlib.metadata.PackageNotFoundError(name)
        return made_up[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(software.importlib.util, "find_spec", lambda name: object())
    return made_up


def test_versions_come_from_metadata(metadata: dict[str, str]) -> None:
    metadata |= {"numpy": "9.8", "cupy-cuda12x": "14.2", "ml-dtypes": "0.5"}
    found = by_name(software.arrays())
    assert found["numpy"].value == f"9.8, kernels of ringcore_numpy, {software.numpy_kernels()}"
    assert found["cupy"].value.startswith("14.2, ")
    assert found["ml_dtypes"].value == "0.5, for bfloat16 in NumPy"
    assert found["torch"].value.startswith("of unknown version, ")  # there, but nobody knows from where


def test_jax_without_jaxlib_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        software.importlib.util, "find_spec", lambda name: None if name == "jaxlib" else object()
    )
    found = by_name(software.arrays())["jax"]
    assert found.status == "problem" and found.cure == "pip install 'ringcore[jax]'"


def test_whose_kernels_compute(monkeypatch: pytest.MonkeyPatch, metadata: dict[str, str]) -> None:
    monkeypatch.setattr(registry, "_BACKENDS", {"jaxlib": "ringcore_jax:backend"})
    entries = [SimpleNamespace(name="torch"), SimpleNamespace(name="torch")]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: entries if "backends" in group else []
    )
    found = by_name(software.arrays())
    assert "kernels of ringcore_jax" in found["jax"].value
    assert "plugged in" in found["torch"].value
    assert "generic" in found["numpy"].value
    assert "kernels" not in found["ml_dtypes"].value
    own = by_name(software.own())
    assert own["backends"].value == "ringcore_jax" and own["backends, plugged in"].value == "torch"
    assert "transports, plugged in" not in own


def test_every_extra_that_is_named_is_used() -> None:
    files = [path for root in ("ringcore", "backends", "transports") for path in (ROOT / root).rglob("*.py")]
    imports = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
    used = {name for path in files for name in imports.findall(path.read_text())}
    assert "numpy" in used
    assert {x.module for x in software.EXTRAS} <= used


def test_which_kernels_numpy_arrays_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own has found the same as this one; and what it says where numba does not work."""
    found = dispatch.installed_kernels()
    here = f"plain ones: {found}" if isinstance(found, ImportError) else "compiled"
    assert by_name(software.arrays())["numpy"].value.endswith(f", {here}")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert software.numpy_kernels().startswith("plain ones: ")


def test_blas_is_the_one_that_numpy_has_loaded() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    loaded = [x for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"]
    found = [x for x in blas.blas({}) if x.name != "library"]
    assert [x.name for x in found] == [x["internal_api"] for x in loaded]
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert all("threads: 1" in x.value for x in blas.blas({}) if x.name != "library")


def test_a_blas_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threadpoolctl, "threadpool_info", list)
    (found,) = blas.blas({})
    assert found.status == "note" and blas.threads() is None and blas.kernels() == ""
