"""The distribution: what it holds, what it imports, what it may import."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = [ROOT, ROOT / "backends", ROOT / "transports"]
BACKEND_LIBRARIES = {"cupy", "jax", "jaxlib", "torch", "tensorflow", "numba", "scipy"}
MPI_LIBRARIES = {"mpi4py", "ringcore_mpi", "ringcore_nccl"}
COMMAND_LINE_LIBRARIES = {"matplotlib", "typer", "rich", "dnaio"}
TEST_LIBRARIES = {"pytest", "hypothesis", "array_api_strict"}


def packages() -> list[str]:
    """Every built-in top-level package, as the tree has it."""
    return ["ringcore", *sorted(path.parent.name for path in ROOT.glob("*/ringcore_*/__init__.py"))]


# ------------------------------------------------------------------ what is imported when

# Notes every attempt to import one of the names, also where it fails and a `try` hides that.
WATCH = """
import importlib.abc, sys
names, roots, module = eval(sys.argv[1]), eval(sys.argv[2]), sys.argv[3]
seen = {name for name in names if name in sys.modules}
class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in names:
            seen.add(name.partition(".")[0])
sys.meta_path.insert(0, Watch())
sys.path[:0] = roots
__import__(module)
print(*sorted(seen))
"""


def imported(module: str, names: set[str]) -> list[str]:
    """Those of ``names`` that a fresh interpreter tries to import when it imports ``module``."""
    roots = [str(root) for root in SOURCE_ROOTS]
    run = subprocess.run(
        [sys.executable, "-I", "-c", WATCH, repr(names), repr(roots), module],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_contract_11_importing_ringcore_loads_no_backend_library():
    unwanted = BACKEND_LIBRARIES | MPI_LIBRARIES | COMMAND_LINE_LIBRARIES | TEST_LIBRARIES
    assert imported("ringcore", unwanted) == []


def test_contract_11_importing_the_numpy_backend_loads_no_mpi():
    assert imported("ringcore_numpy", MPI_LIBRARIES) == []


def test_the_watch_sees_an_import():
    assert imported("xml.dom.minidom", {"xml", "jax"}) == ["xml"]


# ------------------------------------------------------------------ what may be imported at all


def imports_of(path: Path, at_the_top_only: bool = False) -> set[str]:
    """Top-level names of all modules that a file imports; inside functions, too, unless told otherwise."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_the_top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


CORE = sorted(path for path in (ROOT / "ringcore").rglob("*.py"))


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_inwards(path):
    # Commands stand above all, and may load what a user asks them about; but only then.
    found = imports_of(path, at_the_top_only="cli" in path.parts)
    assert not found & (BACKEND_LIBRARIES | {"mpi4py"})
    assert not {name for name in found if name.startswith("ringcore_")}


# ------------------------------------------------------------------ what is installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built from a copy: a build leaves files that the next one would take up."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("ringcore", "backends", "transports", "tests"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = subprocess.run(
        [*command, "--wheel-dir", str(out), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    (path,) = out.glob("ringcore-*.whl")
    return path


def test_the_wheel_holds_every_module_and_no_test(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {
        str(path.relative_to(root)) for root in SOURCE_ROOTS for path in root.glob("ringcore*/**/*.py")
    }
    assert names == modules | {f"{package}/py.typed" for package in packages()}


def test_the_wheel_names_its_licence_and_entry_points(wheel):
    archive = zipfile.ZipFile(wheel)
    info = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
    assert "licenses/LICENSE" in info
    assert "License-Expression: BSD-3-Clause" in archive.read(info["METADATA"]).decode()
    entries = archive.read(info["entry_points.txt"]).decode()
    assert "ringcore = ringcore.cli:main" in entries
    assert "ringcore = ringcore.testing.plugin" in entries
    # The built-in ones must not be declared: nobody should scan entry points for them.
    assert "[ringcore.backends]" not in entries
    assert "[ringcore.transports]" not in entries


def test_the_wheel_works_by_itself(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import numpy as np, ringcore as rc
q = np.ones((4, 2))
out = rc.run_ranks(2, lambda ring: rc.attention(q[:2], q[:2], q[:2], ring=ring))
import ringcore_numpy, ringcore_threads
assert all(m.__file__.startswith({str(tmp_path)!r}) for m in (rc, ringcore_numpy, ringcore_threads))
assert all(np.array_equal(x, np.ones((2, 2))) for x in out)
"""
    run = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr


def test_the_module_runs_as_a_program():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    run = subprocess.run(
        [sys.executable, "-m", "ringcore", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("ringcore ")
