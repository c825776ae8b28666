from __future__ import annotations

import numpy as np
import pytest

from ringcore.cli.errors import InputError
from ringcore.cli.genome import encode, settings
from ringcore.cli.genome.fasta import RawRecord, to_codes
from tests.cli.genomes import random_bases


def test_the_chloroplast_needs_no_more_than_16_bases() -> None:
    chosen = settings.choose(154_478)
    assert (chosen.context, chosen.sharpness, chosen.prior_mass) == (16, 3.0, 0.01)


@pytest.mark.parametrize("bases", [1, 10**4, 2 * 10**6, 3 * 10**6, 10**8, 3 * 10**9])
def test_context_is_the_least_that_keeps_the_background_low_but_16_at_least(bases: int) -> None:
    w = settings.choose(bases).context
    assert settings.background(bases, w, 3.0) < 0.01
    assert w == 16 or settings.background(bases, w - 1, 3.0) >= 0.01


def test_a_duller_sharpness_asks_for_more_context() -> None:
    assert settings.choose(10**6, sharpness=1.5).context > settings.choose(10**6, sharpness=3.0).context


def test_background_is_the_mean_weight_of_random_keys() -> None:
    w, b = 4, 1.0  # short enough that random keys weigh something
    strands = encode.both_strands(to_codes(RawRecord("x", random_bases(3000, seed=1))))
    keys = encode.keys(*encode.key_stretches(strands, 0, strands.size, w), w)
    query = encode.contexts(to_codes(RawRecord("x", random_bases(400, seed=2))), w)
    seen = np.exp(b * (query @ keys.T) - b * w).sum(axis=1).mean()
    assert seen == pytest.approx(settings.background(3000, w, b), rel=0.03)


def test_same_base_counts_both_strands() -> None:
    assert settings.same_base(np.array([0, 0, 0, 0], np.uint8)) == 0.5
    assert settings.same_base(np.array([0, 1, 2, 3], np.uint8)) == 0.25
    assert settings.same_base(np.array([4], np.uint8)) == 0.25


@pytest.mark.parametrize(
    "given", [{"context": 0}, {"context": 257}, {"sharpness": 0.0}, {"sharpness": float("nan")}]
)
def test_out_of_range(given: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be from"):
        settings.choose(1000, **given)
