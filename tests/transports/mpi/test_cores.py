"""A rank's share of the cores of its node."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, event, example, given
from hypothesis import strategies as st
from ringcore_mpi.cores import share

SETS = st.lists(st.frozensets(st.integers(0, 11), min_size=1), min_size=1, max_size=9)


def fair(affinities: list[frozenset[int]], rank: int) -> Fraction:
    """Its part of each of its cores, exactly."""
    return sum(
        (Fraction(1, sum(core in other for other in affinities)) for core in affinities[rank]), Fraction(0)
    )


@given(SETS)
def test_every_rank_has_its_fair_share_in_whole_cores_and_at_least_one(affinities):
    for rank in range(len(affinities)):
        assert share(affinities, rank) == max(1, fair(affinities, rank).__floor__())


@given(SETS)
def test_no_more_than_the_cores_there_are(affinities):
    """Unless somebody must have one that it cannot have fairly."""
    assume(all(fair(affinities, rank) >= 1 for rank in range(len(affinities))))
    event(f"{len(affinities)} ranks")
    assert sum(share(affinities, rank) for rank in range(len(affinities))) <= len(
        frozenset().union(*affinities)
    )


@given(st.lists(st.integers(1, 16), min_size=1, max_size=9))
def test_bound_ranks_have_their_own(counts):
    ends = [sum(counts[: rank + 1]) for rank in range(len(counts))]
    affinities = [frozenset(range(end - count, end)) for end, count in zip(ends, counts, strict=True)]
    assert [share(affinities, rank) for rank in range(len(counts))] == counts


@given(cores=st.integers(1, 200), ranks=st.integers(1, 60))
@example(cores=6, ranks=3)
def test_unbound_ranks_share_alike(cores, ranks):
    """Six thirds add up to less than 2 in floating point: no core is lost by that."""
    affinities = [frozenset(range(cores))] * ranks
    assert {share(affinities, rank) for rank in (0, ranks - 1)} == {max(1, cores // ranks)}
