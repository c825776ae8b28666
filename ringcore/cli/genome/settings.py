"""Context and sharpness, and why they suffice for a genome of a given size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringcore.cli.errors import InputError

LEAST_CONTEXT = 16
SHARPNESS = 3.0
BACKGROUND_LIMIT = 0.01
PRIOR_MASS = 0.01


@dataclass(frozen=True)
class Settings:
    """What the attention is asked.

    Attributes
    ----------
    context : int
        w: how many bases before a position are compared.
    sharpness : float
        b: the score of one equal base. A copy with one base different weighs exp(-b).
    prior_mass : float
        Weight of the uniform distribution that is mixed into each prediction, in copies.
    least_copies : float
        A position has a partner only where the soft number of copies is larger.
    least_sign : float
        And only where the mean of every index bit is at least so far from 0. A key with a share f of
        the weight makes all of them at least 2f - 1; under 1/3, `repeats.confirmed` holds.
    """

    context: int
    sharpness: float
    prior_mass: float = PRIOR_MASS
    least_copies: float = 0.5
    least_sign: float = 0.1


def background(bases: int, context: int, sharpness: float, same: float = 0.25) -> float:
    """Expected weight of all keys of a random genome, in copies: 2N (same + (1 - same) e^-b)^w.

    Parameters
    ----------
    bases : int
        N.
    context, sharpness : int, float
        w and b.
    same : float
        Probability that two random bases are equal: 1/4 if all four are equally frequent.

    Examples
    --------
    >>> round(background(154_478, 16, 3.0), 5)
    0.00067
    """
    return 2 * bases * (same + (1 - same) * math.exp(-sharpness)) ** context


def same_base(codes: NDArray[np.uint8]) -> float:
    """Probability that two bases drawn from both strands of this genome are equal."""
    counts = np.bincount(codes, minlength=5)[:4].astype(float)
    both = counts + counts[::-1]
    return float(((both / both.sum()) ** 2).sum()) if both.sum() else 0.25


def choose(bases: int, context: int | None = None, sharpness: float | None = None) -> Settings:
    """Settings for N bases: w = 16 and b = 3, w larger where the background would reach 0.01.

    Raises
    ------
    InputError
        If a given context or sharpness is out of range.

    Examples
    --------
    >>> choose(154_478).context, choose(3_000_000).context
    (16, 17)
    """
    b = SHARPNESS if sharpness is None else sharpness
    if not 0.5 <= b <= 20:
        raise InputError(f"--sharpness must be from 0.5 to 20. Got {b:g}. The default is {SHARPNESS:g}.")
    if context is None:
        context = LEAST_CONTEXT
        while background(bases, context, b) >= BACKGROUND_LIMIT:
            context += 1
    if not 1 <= context <= 256:
        raise InputError(
            f"--context must be from 1 to 256 bases. Got {context}. Leave it out for a safe choice."
        )
    return Settings(context, b)
