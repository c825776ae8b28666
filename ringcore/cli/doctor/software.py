"""What is installed: versions from metadata, so that nothing heavy is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ringcore
from ringcore import registry
from ringcore.cli.doctor.finding import Finding
from ringcore.cli.version import installed_version


@dataclass(frozen=True)
class Package:
    """Something that can be installed.

    Attributes
    ----------
    module : str
        Import name.
    distributions : tuple of str
        The names that it is installed under.
    cure : str
        The line that installs it.
    use : str
        What it is good for.
    roots : tuple of str
        Top-level modules of the types of its arrays; empty: it has no arrays.
    """

    module: str
    distributions: tuple[str, ...]
    cure: str
    use: str = ""
    roots: tuple[str, ...] = ()


_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")

_SECONDS = 60  # to load numba and SciPy from a slow disk

ARRAYS = (
    Package("numpy", ("numpy",), "pip install numpy", "CPUs", ("numpy",)),
    Package("jax", ("jax",), "pip install 'ringcore[jax]'", "CPUs, GPUs, TPUs", ("jax", "jaxlib")),
    Package("cupy", _CUPY, "pip install cupy-cuda13x", "NVIDIA GPUs", ("cupy",)),
    Package("torch", ("torch",), "pip install torch", "CPUs, GPUs", ("torch",)),
    Package(
        "array_api_strict",
        ("array-api-strict",),
        "pip install array-api-strict",
        "tests of array API code",
        ("array_api_strict",),
    ),
    Package("ml_dtypes", ("ml-dtypes",), "pip install ml-dtypes", "bfloat16 in NumPy"),
)

EXTRAS = (
    Package("numba", ("numba",), "pip install 'ringcore[fast]'", "compiled kernels for NumPy"),
    Package("scipy", ("scipy",), "pip install 'ringcore[fast]'", "compiled kernels for NumPy"),
    Package("dnaio", ("dnaio",), "pip install 'ringcore[cli]'", "ringcore genome"),
    Package("matplotlib", ("matplotlib",), "pip install 'ringcore[cli]'", "ringcore genome"),
    Package("rich", ("rich",), "pip install 'ringcore[cli]'", "the command line"),
    Package("typer", ("typer",), "pip install 'ringcore[cli]'", "the command line"),
    Package("hypothesis", ("hypothesis",), "pip install hypothesis", "ringcore.testing.strategies"),
)


def installed(module: str, distributions: tuple[str, ...]) -> str | None:
    """The version of a package that can be imported, without importing it; None if it cannot."""
    if importlib.util.find_spec(module) is None:
        return None
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"


def own() -> Iterator[Finding]:
    """Ringcore itself: where it is, and what is built and plugged into it."""
    version = installed_version()
    if version == "unknown":
        cure = "pip install -e . in that folder, so that 'ringcore' and its plug-ins are found everywhere"
        yield Finding("ringcore", "version", "a source tree that is not installed", "note", cure)
    else:
        yield Finding("ringcore", "version", version)
    yield Finding("ringcore", "where", str(Path(ringcore.__file__).parent))
    for kind, table in (("backends", registry._BACKENDS), ("transports", registry._TRANSPORTS)):
        built_in = sorted({place.partition(":")[0] for place in table.values()})
        yield Finding("ringcore", kind, ", ".join(built_in))
        plugged = plugged_in(kind)
        if plugged:
            yield Finding("ringcore", f"{kind}, plugged in", ", ".join(plugged))


def plugged_in(kind: str) -> list[str]:
    """Names in the entry-point group of 'backends' or 'transports'."""
    return sorted({entry.name for entry in importlib.metadata.entry_points(group=f"ringcore.{kind}")})


def python() -> Iterator[Finding]:
    """The interpreter, and the machine that it runs on."""
    yield Finding("Python", "version", f"{platform.python_version()}, {platform.python_implementation()}")
    yield Finding("Python", "interpreter", sys.executable or "embedded")
    yield Finding("Python", "platform", platform.platform())
    yield Finding("Python", "host", socket.gethostname())
    gpus = nvidia_gpus()
    yield Finding("Python", "NVIDIA GPUs", str(gpus) if gpus else "none that a driver shows")


def nvidia_gpus() -> int:
    """GPUs of which the driver has a device file. No library is asked: one that fails could end us."""
    return sum(path.name.removeprefix("nvidia").isdecimal() for path in Path("/dev").glob("nvidia*"))


def arrays() -> Iterator[Finding]:
    """Array libraries, and whose kernels compute on them."""
    plugged = plugged_in("backends")
    for package in ARRAYS:
        version = installed(package.module, package.distributions)
        if version is None:
            yield _missing("Array libraries", package)
            continue
        value = (
            f"{version}, {_kernels(package, plugged)}" if package.roots else f"{version}, for {package.use}"
        )
        if package.module == "jax" and installed("jaxlib", ("jaxlib",)) is None:
            value = f"{version}, without jaxlib: it cannot be imported"
            yield Finding("Array libraries", package.module, value, "problem", package.cure)
        else:
            yield Finding("Array libraries", package.module, value)


def _kernels(package: Package, plugged: list[str]) -> str:
    for root in package.roots:
        if root in registry._BACKENDS:
            kernels = "kernels of " + registry._BACKENDS[root].partition(":")[0]
            return f"{kernels}, {numpy_kernels()}" if root == "numpy" else kernels
        if root in plugged:
            return "kernels plugged in"
    return "generic kernels: right, but not fast"


def numpy_kernels() -> str:
    """Which kernels NumPy arrays get. To find out is to load numba and SciPy: in a process of its own."""
    program = (
        "from ringcore_numpy.dispatch import installed_kernels\n"
        "found = installed_kernels()\n"
        "print(f'plain ones: {found}' if isinstance(found, ImportError) else 'compiled')"
    )
    path = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"none: loading them takes more than {_SECONDS} s"
    said = done.stdout.strip().splitlines()
    return said[-1] if said else f"none: loading them ends Python with code {done.returncode}"


def extras() -> Iterator[Finding]:
    """Packages that parts of ringcore need, or could use."""
    for package in EXTRAS:
        version = installed(package.module, package.distributions)
        if version is None:
            yield _missing("Extras", package)
        else:
            yield Finding("Extras", package.module, f"{version}, for {package.use}")


def _missing(section: str, package: Package) -> Finding:
    return Finding(section, package.module, f"not installed; for {package.use}", "note", package.cure)
