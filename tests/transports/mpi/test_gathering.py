"""The allgather of control messages, without MPI: any number of ranks, any order of delivery."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ringcore_mpi.gathering import Gathering, opened, sealed

from ringcore.errors import RingError


class Mail:
    """Letters between ranks: each is under way until it is delivered; those of a pair keep their order."""

    def __init__(self, ranks: int) -> None:
        self.under_way: list[tuple[int, int, bytes]] = []
        self.here: dict[tuple[int, int], deque[bytes]] = {}
        self.sent = [0] * ranks
        self.notes = [0] * ranks

    def deliver(self, random: random.Random) -> None:
        """One of the letters, the first of its pair."""
        source, to, _ = random.choice(self.under_way)
        first = next(letter for letter in self.under_way if letter[:2] == (source, to))
        self.under_way.remove(first)
        self.here.setdefault((source, to), deque()).append(first[2])


class FakePost:
    """What `ringcore_mpi.post.Post` is to a gathering: here a letter has gone when it has been delivered."""

    def __init__(self, mail: Mail, rank: int) -> None:
        self.mail, self.rank = mail, rank

    def send(self, letter: bytes, to: int) -> None:
        self.mail.under_way.append((self.rank, to, letter))
        self.mail.sent[self.rank] += 1
        self.mail.notes[self.rank] += len(opened(letter)[1])

    def unsent(self) -> int | None:
        return next((to for source, to, _ in self.mail.under_way if source == self.rank), None)

    def take(self, source: int) -> bytes | None:
        letters = self.mail.here.get((source, self.rank))
        return letters.popleft() if letters else None


RANKS = st.integers(1, 17)


@given(
    ranks=RANKS.flatmap(
        lambda size: st.lists(
            st.lists(st.binary(max_size=9), min_size=2, max_size=2), min_size=size, max_size=size
        )
    ),
    seed=st.integers(0, 2**16),
)
@example(ranks=[[b"", b""]] * 16, seed=0)
def test_everybody_gets_all_notes_in_rank_order_whatever_the_order_of_delivery(ranks, seed):
    """Two in a row: a rank may be through with the first, and its letters of the second arrive early."""
    size, rng = len(ranks), random.Random(seed)
    mail = Mail(size)
    posts = [FakePost(mail, rank) for rank in range(size)]
    at: list[Gathering | None] = [None] * size
    results: list[list[list[bytes]]] = [[] for _ in range(size)]
    while any(len(result) < 2 for result in results):
        if mail.under_way and rng.random() < 0.5:
            mail.deliver(rng)
            continue
        rank = rng.choice([rank for rank in range(size) if len(results[rank]) < 2])
        number = len(results[rank])
        gathering = at[rank] = at[rank] or Gathering(posts[rank], rank, size, number, ranks[rank][number])
        waited_for = gathering.pending()
        if waited_for is None:
            assert posts[rank].unsent() is None  # its letters are its own no longer than the call
            results[rank].append(gathering.notes())
            at[rank] = None
        else:  # nothing of that rank is here, or something for it is still under way
            assert not mail.here.get((waited_for, rank)) or posts[rank].unsent() == waited_for
    assert results == [[[notes[number] for notes in ranks] for number in (0, 1)]] * size
    assert not mail.under_way
    rounds = (size - 1).bit_length()
    assert mail.sent == [2 * rounds] * size
    assert mail.notes == [2 * (size - 1)] * size  # none twice


def test_the_one_who_has_not_begun_is_waited_for():
    mail = Mail(4)
    gatherings = [Gathering(FakePost(mail, rank), rank, 4, 0, bytes([rank])) for rank in (0, 1, 2)]
    rng = random.Random(0)
    for _ in range(20):
        if mail.under_way:
            mail.deliver(rng)
        waited_for = [gathering.pending() for gathering in gatherings]
    assert waited_for == [2, 3, 3]  # 0 has 1's note and waits for 2, which waits for 3


def test_ranks_that_are_at_different_comparisons_are_told():
    mail = Mail(2)
    early, late = (Gathering(FakePost(mail, rank), rank, 2, number, b"") for rank, number in ((0, 5), (1, 4)))
    rng = random.Random(0)
    while mail.under_way:
        mail.deliver(rng)
    with pytest.raises(RingError, match="Rank 0 is at comparison 5 of the ring, rank 1 at 4"):
        early.pending()
    with pytest.raises(RingError, match="Rank 1 is at comparison 4 of the ring, rank 0 at 5"):
        late.pending()


@given(number=st.integers(0, 2**64 - 1), notes=st.lists(st.binary(max_size=300), max_size=9))
def test_a_letter_gives_back_what_was_sealed(number, notes):
    assert opened(sealed(number, notes)) == (number, notes)
