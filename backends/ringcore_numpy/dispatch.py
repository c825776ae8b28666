"""Which kernels do a step: the compiled ones where they are and can, else the plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

from ringcore.partial import Partial
from ringcore.protocols import Grads, Hidden, Stats
from ringcore.step import Step
from ringcore_numpy.plain import backward as plain_backward
from ringcore_numpy.plain import forward as plain_forward
from ringcore_numpy.pool import cores

Array = Any
Tile = tuple[int, int] | None

_PLAIN_TILE = (512, 512)


def attend(
    q: Array, k: Array, v: Array, step: Step, into: Partial | None, tile: Tile, compiled: bool | None
) -> Partial:
    """Merge attention of q (\\*B, H, L_q, D) over k, v into ``into``, which is written to."""
    kernels = _kernels(compiled)
    if kernels is None or not kernels.can_do(step, q, k, v):
        return plain_forward.attend(q, k, v, step, into, tile or _PLAIN_TILE)
    return kernels.attend(q, k, v, step, into, tile)  # type: ignore[no-any-return]


def attend_backward(
    q: Array,
    k: Array,
    v: Array,
    dout: Array,
    stats: Stats,
    delta: Array,
    step: Step,
    wrt: Sequence[str],
    into: Grads,
    tile: Tile,
    compiled: bool | None,
) -> Grads:
    """Add this step's gradients of the inputs in ``wrt`` to those in ``into``, which are written to."""
    kernels = _kernels(compiled)
    if kernels is None or not kernels.can_do(step, q, k, v):
        tile = tile or _PLAIN_TILE
        return plain_backward.attend_backward(q, k, v, dout, stats, delta, step, wrt, into, tile)
    return kernels.attend_backward(q, k, v, dout, stats, delta, step, wrt, into, tile)  # type: ignore[no-any-return]


def hidden(activation: str, compiled: bool | None) -> Hidden | None:
    """What lies between a feedforward layer's products; None where nothing is compiled."""
    kernels = _kernels(compiled)
    return None if kernels is None else kernels.Hidden(activation)


def _kernels(compiled: bool | None) -> ModuleType | None:
    if compiled is False:
        return None
    found = installed_kernels()
    if isinstance(found, ImportError):
        if compiled:
            raise ImportError(
                f"compiled=True needs numba and SciPy. Got: {found}. "
                "Install them, pip install 'ringcore[fast]', or leave compiled=None."
            ) from found
        return None
    return found


@cache
def installed_kernels() -> ModuleType | ImportError:
    """The compiled kernels, or why there are none."""
    try:
        from ringcore_numpy import compiled
    except ImportError as error:  # not installed, or numba is too old for this NumPy
        return error
    except Exception as error:  # built for another NumPy, a library that does not load
        return ImportError(f"{type(error).__name__}: {error}")
    cores.look_again()  # for BLAS: SciPy has its own
    return compiled
