"""Comparing results with the reference: the contract's bound, element by element, and its no-growth rule.

Two tests belong together. `assert_within_contract` holds every element to a bound that a backward-stable
computation keeps with room to spare, and catches what is wrong. `assert_no_growth` compares root mean
squares of the error with those of dense attention in the same arithmetic; it catches what is worse than it
need be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringcore.dtypes import accumulation_name, dtype_name, unit_roundoff
from ringcore.testing.arrays import half_ulp, overflows_at, round_to, to_numpy
from ringcore.testing.oracle import Results
from ringcore.testing.problem import Problem, lse_dtype

FACTOR = 8.0
"""Errors may be this many times u * cond. Sound code stays below 5; merging rounded (out, lse) exceeds 12."""


def assert_within_contract(
    got: Any,
    want: Any,
    cond: Any,
    dtype: object,
    *,
    name: str = "result",
    u: float | None = None,
    factor: float = FACTOR,
    where: Any = True,
) -> float:
    """Every element errs by at most ``factor * u * cond``, plus half an ulp of the dtype it is rounded to.

    Parameters
    ----------
    got : array
        Of any library.
    want, cond : float64 arrays of the same shape
        Reference and condition numbers, from `ringcore.testing.oracle`.
    dtype : dtype or str
        What ``got`` was rounded to at the end.
    name : str
        What to call it in the message.
    u : float, optional
        Unit roundoff of the arithmetic; by default that of ``dtype``'s accumulation dtype. A kernel that
        rounds the weights to 16 bits is held to the u of these 16 bits.
    factor : float
        See above; the contract's 8 by default.
    where : array of bool, broadcastable
        Elements to compare; all by default.

    Returns
    -------
    float
        The largest error, in units of ``u * cond`` (beyond the half ulp).

    Raises
    ------
    AssertionError
        Naming the worst element. NaN matches NaN, an infinity itself or what ``dtype`` cannot hold; no other
        non-finite value matches anything.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones(2)
    >>> assert_within_contract(one + [0, 4e-7], one, one, "float32")  # doctest: +ELLIPSIS
    5.7...
    >>> assert_within_contract(one + [0, 1e-6], one, one, "float32", name="out")
    Traceback (most recent call last):
        ...
    AssertionError: out must be within 8 u cond + half an ulp of float32 of the reference, u = 2^-24.
    1 of 2 elements are not. The worst is at index (1,): got 1.000001, want 1.0,
    error 1e-06 = 15.8 u cond beyond half an ulp; cond = 1, bound = 5.36e-07.
    """
    label = dtype_name(dtype)
    u = unit_roundoff(accumulation_name(label)) if u is None else u
    x, ref, size = to_numpy(got), np.asarray(want, dtype=np.float64), np.asarray(cond, dtype=np.float64)
    if x.shape != ref.shape:
        raise AssertionError(f"{name} must have shape {ref.shape}. Got {x.shape}.")
    with np.errstate(all="ignore"):
        rounding = np.where(np.isfinite(ref), half_ulp(ref, label), 0.0)
        bound = factor * u * size + rounding
        overflow = np.isinf(x) & (np.sign(x) == np.sign(ref)) & (np.abs(ref) + bound >= overflows_at(label))
        same = (x == ref) | (np.isnan(x) & np.isnan(ref)) | overflow | ~np.broadcast_to(where, ref.shape)
        error = np.where(same, 0.0, np.abs(x - ref))
        bad = ~same & ~(error <= bound)
        excess = np.where(same, 0.0, np.maximum(error - rounding, 0.0))
        units = np.where(excess == 0, 0.0, excess / (u * size))
    if not bad.any():
        return float(np.max(units, initial=0.0))
    rank = np.where(bad, np.where(np.isnan(units), np.inf, units), -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(rank)), rank.shape))
    raise AssertionError(
        f"{name} must be within {factor:g} u cond + half an ulp of {label} of the reference, "
        f"u = 2^{math.log2(u):g}.\n{int(bad.sum())} of {bad.size} elements are not. "
        f"The worst is at index {index}: got {x[index]:.9g}, want {float(ref[index])!r},\n"
        f"error {error[index]:.3g} = {units[index]:.3g} u cond beyond half an ulp; "
        f"cond = {size[index]:.3g}, bound = {bound[index]:.3g}."
    )


def nrms(error: Any, u: float, cond: Any) -> float:
    """Root mean square of ``error / (u * cond)``; elements of condition 0 and error 0 do not count.

    Examples
    --------
    >>> nrms([3.0, 4.0, 0.0], 1.0, [1.0, 1.0, 0.0])
    3.5355339059327378
    """
    e, size = np.asarray(error, dtype=np.float64), np.asarray(cond, dtype=np.float64)
    counts = ~((size == 0) & (e == 0))
    if not counts.any():
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean((e[counts] / (u * size[counts])) ** 2)))


def assert_no_growth(ring_nrms: float, dense_nrms: float, *, name: str = "result") -> None:
    """The ring's error is that of dense attention in the same arithmetic: nrms at most 1.5 x its nrms + 0.02.

    Meant for pinned problems with S >= 64. A ratio of maxima over small random problems would be flaky.
    """
    limit = 1.5 * dense_nrms + 0.02
    if not ring_nrms <= limit:
        raise AssertionError(
            f"{name}: the error must not grow with the ring: nrms at most 1.5 x dense + 0.02 = {limit:.3g}. "
            f"Got {ring_nrms:.3g}, dense {dense_nrms:.3g}."
        )


def check_attention(
    problem: Problem, results: Sequence[Results], *, u: float | None = None, factor: float | None = None
) -> dict[str, float]:
    """Compare what every rank got for a problem with the reference over the whole sequence.

    Checks for each result that is not None: each rank's shape and dtype (that of q; for lse the
    accumulation dtype), and every element against the contract. Where an input is NaN or inf, the rows that
    it can reach are not compared, but the numbers that it does reach must not be finite; all other rows are
    compared as always.

    Parameters
    ----------
    problem : Problem
    results : sequence of Results, one for each rank
        This rank's shards, as `solve` returns them.
    u : float, optional
        As in `assert_within_contract`.
    factor : float, optional
        As there; `Problem.factor` by default.

    Returns
    -------
    dict
        For each result the largest error in units of u * cond.

    Raises
    ------
    AssertionError
        Naming the result, the rank or element, and the problem.
    """
    try:
        whole = assemble(problem, results)
        want, cond, reach = problem.reference, problem.conditions, problem.may_be_nonfinite
        worst = {}
        for name, got in whole._asdict().items():
            if got is None:
                continue
            worst[name] = assert_within_contract(
                got,
                getattr(want, name),
                getattr(cond, name),
                _dtype_of(problem, name),
                name=name,
                u=u,
                factor=problem.factor if factor is None else factor,
                where=~getattr(reach, name),
            )
            if getattr(reach, name).any():
                _assert_reached(name, got, getattr(problem.must_be_nonfinite, name))
        return worst
    except AssertionError as error:
        raise AssertionError(f"{error}\nIn {problem!r}") from None


def check_no_growth(problem: Problem, results: Sequence[Results]) -> dict[str, tuple[float, float]]:
    """`assert_no_growth` for each result of a problem, against dense attention in its accumulation dtype.

    What dense attention gives is rounded to the results' dtype, as they are.

    Returns
    -------
    dict
        For each result (nrms of the ring, nrms of dense attention).
    """
    whole, want, cond = assemble(problem, results), problem.reference, problem.conditions
    dense = problem.dense
    u = unit_roundoff(accumulation_name(problem.dtype))
    found = {}
    for name, got in whole._asdict().items():
        if got is None:
            continue
        ref, size = getattr(want, name), getattr(cond, name)
        with np.errstate(over="ignore"):
            rounded = round_to(getattr(dense, name), _dtype_of(problem, name))
        ring, plain = (nrms(_distance(x, ref), u, size) for x in (got, rounded))
        assert_no_growth(ring, plain, name=f"{name} of {problem!r}")
        found[name] = (ring, plain)
    return found


def assemble(problem: Problem, results: Sequence[Results]) -> Results:
    """Whole arrays in global order, float64, heads before the sequence, from every rank's shards.

    Puts each row where `Layout.positions` says, so that it is independent of `Layout.unshard`.

    Raises
    ------
    AssertionError
        If a shard has the wrong shape or dtype, some ranks have a result and others None, or all are None.
    """
    if len(results) != problem.ranks:
        raise AssertionError(f"results must be one for each of {problem.ranks} ranks. Got {len(results)}.")
    whole = Results(
        *(_assemble_one(problem, name, [getattr(r, name) for r in results]) for name in Results._fields)
    )
    if all(x is None for x in whole):
        raise AssertionError(
            f"results must hold at least one of {', '.join(Results._fields)}: nothing was compared. "
            "Got None for all of them."
        )
    return whole


def _assemble_one(problem: Problem, name: str, parts: list[Any]) -> NDArray[np.float64] | None:
    missing = [rank for rank, part in enumerate(parts) if part is None]
    if len(missing) == len(parts):
        return None
    if missing:
        raise AssertionError(f"{name} must be there on every rank or on none. Missing on rank {missing}.")
    layout = problem.k_layout if name in ("dk", "dv") else problem.q_layout
    whole = np.full(problem.shape_of(name), np.nan)
    axis = -1 if name == "lse" else -2
    want_dtype = _dtype_of(problem, name)
    for rank, part in enumerate(parts):
        if dtype_name(part.dtype) != want_dtype:
            raise AssertionError(f"{name} on rank {rank} must have dtype {want_dtype}. Got {part.dtype}.")
        positions = layout.positions(rank)
        values = to_numpy(part)
        if name != "lse":
            values = np.moveaxis(values, problem.seq_axis, -2) if values.ndim > 1 else values
        rows = np.take(whole, positions, axis=axis)
        if values.shape != rows.shape:
            raise AssertionError(
                f"{name} on rank {rank} must have shape {rows.shape} (heads first). Got {values.shape}."
            )
        if axis == -1:
            whole[..., positions] = values
        else:
            whole[..., positions, :] = values
    return whole


def _dtype_of(problem: Problem, name: str) -> str:
    return lse_dtype(problem.dtype) if name == "lse" else problem.dtype


def _assert_reached(name: str, got: NDArray[np.float64], must: Any) -> None:
    """No number that a NaN or inf reaches may be finite: a kernel has swallowed it."""
    swallowed = must & np.isfinite(got)
    if swallowed.any():
        index = tuple(int(i) for i in np.argwhere(swallowed)[0])
        raise AssertionError(
            f"{name} must be NaN or inf where a NaN or inf of the inputs reaches it.\n"
            f"{int(swallowed.sum())} of {int(must.sum())} such elements are finite. "
            f"The first is at index {index}: got {got[index]:.9g}."
        )


def _distance(x: Any, y: Any) -> NDArray[np.float64]:
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, np.abs(a - b))
