"""Running a problem: on the ranks of a ring that there is, or on ranks that are threads of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ringcore.testing.oracle import Results
from ringcore.testing.problem import Problem

if TYPE_CHECKING:
    from ringcore.ring import Ring


def solve_on(ring: Ring, problem: Problem, *, backend: Any = None) -> Results:
    """Solve this rank's part of a problem with `ringcore.attention_vjp`. Collective.

    Parameters
    ----------
    ring : Ring
        Of as many ranks as the problem's layouts have.
    problem : Problem
        The same on every rank; each cuts its own shards.
    backend : Backend, or callable, optional
        As in `solve`.

    Returns
    -------
    Results
        This rank's shards. `check_attention` takes one from each rank.

    Raises
    ------
    ValueError
        If the problem is for another number of ranks; on all of them alike.

    Notes
    -----
    NumPy inputs are made read-only: kernels that write to them fail.

    Examples
    --------
    >>> import numpy
    >>> import ringcore as rc
    >>> problem = Problem(xp=numpy, q_layout=rc.Layout.striped(length=9, ranks=2))
    >>> [results.lse.shape for results in rc.run_ranks(2, solve_on, problem)]
    [(1, 5), (1, 4)]
    """
    import ringcore

    if problem.ranks != ring.size:
        raise ValueError(
            f"problem must be for the ranks of the ring, {ring.size}. Got {problem.ranks}. "
            "Make its layouts with ranks=ring.size."
        )
    q, k, v, dout, dlse = (_read_only(x) for x in problem.shards(ring.rank))
    kernels = _kernels(problem, backend)
    (out, lse), pullback = ringcore.attention_vjp(
        q, k, v, ring=ring, return_lse=True, backend=kernels, **problem.options(ring.rank)
    )
    return Results(out, lse, *pullback(dout, dlse))


def solve(problem: Problem, *, backend: Any = None, timeout: float = 20.0) -> list[Results]:
    """Solve a problem with `ringcore.attention_vjp`, on as many thread ranks as its layouts have.

    Parameters
    ----------
    problem : Problem
    backend : Backend, or callable, optional
        Kernels to use; a class or function is called with the problem's ``tile``. By default the library's
        choice for the arrays, or the generic kernels with that tile if the problem has one.
    timeout : float
        Seconds after which waiting for a silent rank becomes an error.

    Returns
    -------
    list of Results
        This rank's shards, in rank order: what `check_attention` takes.

    Notes
    -----
    NumPy inputs are made read-only: kernels that write to them fail.

    Examples
    --------
    >>> import numpy
    >>> from ringcore import Layout
    >>> from ringcore.testing import Call, DrawnMask, check_attention
    >>> layout = Layout.striped(length=9, ranks=2)
    >>> problem = Problem(xp=numpy, q_layout=layout, mask=DrawnMask(Call("causal")))
    >>> errors = check_attention(problem, solve(problem))
    >>> all(error < 8 for error in errors.values())
    True
    """
    import ringcore

    kernels = _kernels(problem, backend)  # one for all ranks
    return ringcore.run_ranks(
        problem.ranks, lambda ring: solve_on(ring, problem, backend=kernels), timeout=timeout
    )


def _read_only(x: Any) -> Any:
    """NumPy lets us make sure that inputs are never written to."""
    if isinstance(x, np.ndarray):
        x = x.view()
        x.flags.writeable = False
    return x


def _kernels(problem: Problem, backend: Any) -> Any:
    if callable(backend):
        return backend() if problem.tile is None else backend(tile=problem.tile)
    if backend is None and problem.tile is not None:
        from ringcore.block import GenericBackend

        return GenericBackend(tile=problem.tile)
    return backend
