"""The array libraries that can be verified: where they are, which dtypes they have, how to get them."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from ringcore.cli.errors import InputError

DTYPES = ("float64", "float32", "float16", "bfloat16")


class _Known(NamedTuple):
    namespace: str  # what array_api_compat.array_namespace gives for the library's arrays
    dtypes: tuple[str, ...]
    cure: str


LIBRARIES = MappingProxyType(
    {
        "numpy": _Known("array_api_compat.numpy", DTYPES, "pip install numpy"),
        "torch": _Known("array_api_compat.torch", DTYPES, "pip install torch"),
        "jax": _Known("jax.numpy", DTYPES, "pip install 'ringcore[jax]'"),
        "array_api_strict": _Known("array_api_strict", DTYPES[:2], "pip install array-api-strict"),
        "cupy": _Known(
            "array_api_compat.cupy", DTYPES[:3], "pip install cupy-cuda12x, or what fits your CUDA"
        ),
    }
)
"""By the name of the module to import."""


@dataclass(frozen=True)
class Library:
    """A library that has been loaded.

    Attributes
    ----------
    name, version : str
    xp : module
        Its array API namespace.
    dtypes : tuple of str
        What can be verified here.
    lacking : str
        What else it could have, and how to get it; empty if nothing.
    """

    name: str
    version: str
    xp: Any
    dtypes: tuple[str, ...]
    lacking: str = ""


def load(name: str) -> Library:
    """Import a library.

    Raises
    ------
    InputError
        If there is none of this name, it is not installed, or does not load.

    Examples
    --------
    >>> load("numpy").name
    'numpy'
    """
    name = name.replace("-", "_")
    known = LIBRARIES.get(name)
    if known is None:
        raise InputError(f"--library must be one of {', '.join(LIBRARIES)}. Got {name}.")
    if importlib.util.find_spec(name) is None:
        raise InputError(f"--library {name} is not installed. Run: {known.cure}")
    try:
        module = importlib.import_module(name)
        if name == "jax" and "JAX_ENABLE_X64" not in os.environ:
            module.config.update("jax_enable_x64", True)
        xp = importlib.import_module(known.namespace)
    except Exception as error:  # a library may fail in any way where its driver or its build does not fit
        raise InputError(f"--library {name} is installed but does not load: {error}") from error
    dtypes, lacking = known.dtypes, ""
    if name == "numpy" and importlib.util.find_spec("ml_dtypes") is None:
        dtypes, lacking = DTYPES[:3], "bfloat16 of numpy needs ml_dtypes: pip install ml_dtypes"
    if name == "jax" and not module.config.jax_enable_x64:
        dtypes, lacking = DTYPES[1:], "float64 of jax is switched off: unset JAX_ENABLE_X64"
    return Library(name, str(module.__version__), xp, dtypes, lacking)


def chosen(library: Library, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The dtypes to verify: all that the library has, or those that are wanted.

    Raises
    ------
    InputError
        If it lacks one that is wanted.
    """
    for dtype in wanted:
        if dtype not in DTYPES:
            raise InputError(f"--dtype must be one of {', '.join(DTYPES)}. Got {dtype}.")
        if dtype not in library.dtypes:
            cure = library.lacking or f"It has {', '.join(library.dtypes)}"
            raise InputError(f"--dtype {dtype} cannot be had from {library.name} here. {cure}.")
    return tuple(dtype for dtype in library.dtypes if not wanted or dtype in wanted)
