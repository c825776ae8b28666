"""Who is alive, by one rank's knowledge, without MPI: a clock that is a number, letters in lists."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from ringcore_mpi.vitals import Vitals

from ringcore.errors import PeerFailed, PeerTimeout

TIMEOUT = 4.0
PERIOD = 1.0  # between questions
LINK = 1.5  # by which knowledge ages at each link


class Desk:
    """A rank under test: what it sends is kept, what others would answer is made up."""

    def __init__(self, rank: int = 0, size: int = 4) -> None:
        self.now, self.sent = 0.0, []
        self.vitals = Vitals(rank, size, lambda letter, to: self.sent.append((to, letter)), lambda: self.now)
        self.vitals.status = "attention, hop 1 of 3"

    def wait(self, peer: int, until: float, for_data: bool = False, step: float = 0.25) -> None:
        """Look every ``step`` seconds."""
        self.vitals.awaits(peer, for_data)
        while self.now < until:
            self.now += step
            self.vitals.awaits(peer, for_data)

    def asked(self) -> list[tuple[int, float]]:
        return [(to, letter["at"]) for to, letter in self.sent if letter["kind"] == "ask"]

    def answer(self, source: int, **state: Any) -> None:
        """An answer to a question of now."""
        letter = {
            "kind": "answer",
            "status": "attention, hop 2 of 3",
            "comparisons": {},
            "idle_for": 0.0,
            "lag": 0.0,
            "chain": [],
            "asked_at": self.now,
        }
        self.vitals.receive(source, json.loads(json.dumps(letter | state)))

    def talk(self, peer: int, until: float, for_data: bool = False, **state: Any) -> None:
        """Wait, and get an answer every second: nobody has been at work, unless it says otherwise."""
        while self.now < until:
            self.wait(peer, self.now + 1, for_data)
            self.answer(peer, **({"idle_for": self.now} | state))


def test_nobody_is_asked_at_once_then_once_a_period():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 3.75)
    assert desk.asked() == [(2, 1.0), (2, 2.0), (2, 3.0)]


@pytest.mark.parametrize(("timeout", "period"), [(0.4, 0.1), (4.0, 1.0), (600.0, 1.0)])
def test_the_time_between_questions_follows_the_timeout_up_to_a_second(timeout, period):
    desk = Desk()
    desk.vitals.begin(timeout, "ring")
    desk.wait(2, 0.9 * timeout, step=period / 10)
    times = [at for _, at in desk.asked()]
    assert all(abs(later - earlier - period) < 0.11 * period for earlier, later in pairwise(times))
    assert abs(len(times) - 0.9 * timeout / period) < 0.12 * timeout / period + 1


def test_a_silent_rank_is_an_error_that_says_who_where_and_for_whom():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    with pytest.raises(PeerTimeout) as caught:
        desk.wait(2, 10.0)
    assert TIMEOUT < desk.now <= TIMEOUT + 0.25
    assert caught.value.peer == 2
    for text in ("rank 0 of 4", "rank 2 of 4", "attention, hop 1 of 3", "4 s", "does not answer"):
        assert text in str(caught.value)


def test_what_a_rank_was_last_known_to_be_at_is_told_after_it_has_died():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 1.5)
    desk.answer(2, status="attention, hop 0 of 3")
    with pytest.raises(PeerTimeout, match="hop 0 of 3") as caught:
        desk.wait(2, 20.0)
    assert 1.5 + TIMEOUT < desk.now <= 1.75 + TIMEOUT
    assert "does not answer" in str(caught.value)


def test_a_rank_that_answers_that_it_computes_is_waited_for():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.talk(2, 100.0, idle_for=0.0)
    assert desk.vitals.broken is None


def test_an_old_answer_does_not_make_a_rank_look_alive():
    """It is counted from its question: a letter that took 3 s says nothing of the last 3 s."""
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 3.5)
    desk.answer(2, asked_at=0.5)
    with pytest.raises(PeerTimeout):
        desk.wait(2, 20.0)
    assert 0.5 + TIMEOUT < desk.now <= 0.75 + TIMEOUT


def test_an_answer_of_another_rank_does_not_keep_the_wait_alive():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 3.5)
    desk.answer(1)
    with pytest.raises(PeerTimeout):
        desk.wait(2, 20.0)
    assert desk.now <= TIMEOUT + 0.25


def test_a_rank_that_waits_for_a_silent_one_is_not_blamed():
    """The last of the chain is, and each link is told with its hop. It answers: judged a link later."""
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    chain = [[3, "attention, hop 1 of 3", True], [1, None, False]]
    with pytest.raises(PeerTimeout) as caught:
        desk.talk(2, 100.0, lag=2 * LINK, chain=chain)
    assert TIMEOUT + 2 * LINK < desk.now <= TIMEOUT + 2 * LINK + 0.25
    assert caught.value.peer == 1
    text = str(caught.value)
    places = [
        text.index(part) for part in ("rank 2 of 4", "hop 2 of 3", "rank 3 of 4", "rank 1 of 4", "not answer")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("heard", [1.5, 3.5])
def test_a_rank_that_dies_at_the_near_end_of_a_long_chain_is_missed_in_time(heard):
    """However late it might have known of the far end. Its last answer is as old as the question."""
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, heard)
    desk.answer(2, asked_at=1.5, lag=4 * LINK, chain=[[3, None, True]])
    with pytest.raises(PeerTimeout, match="does not answer") as caught:
        desk.wait(2, 20.0)
    assert 1.5 + TIMEOUT < desk.now <= 1.75 + TIMEOUT
    assert caught.value.peer == 2


def test_two_ranks_that_wait_for_each_other():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    with pytest.raises(PeerTimeout, match="gets nowhere") as caught:
        desk.talk(2, 100.0, lag=1e9, chain=[[0, "allreduce", True]])
    assert TIMEOUT < desk.now <= TIMEOUT + LINK + 0.25
    assert caught.value.peer == 2


def test_time_in_which_the_waiting_rank_was_itself_suspended_does_not_count():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 3.0)
    desk.now += 1000.0
    desk.vitals.awaits(2, False)
    with pytest.raises(PeerTimeout):
        desk.wait(2, 2000.0)
    assert 1000 + TIMEOUT < desk.now <= 1000.25 + TIMEOUT


def test_what_has_come_of_one_rank_gives_the_next_one_its_time():
    """Data of rank 1 came at last: rank 2, never asked so far, has a timeout of its own."""
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(1, 3.75)
    with pytest.raises(PeerTimeout):
        desk.wait(2, 20.0)
    assert 3.75 + TIMEOUT < desk.now <= 4.25 + TIMEOUT
    assert next(at for to, at in desk.asked() if to == 2) <= 5.25


def test_one_wait_does_not_inherit_the_age_of_another():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(1, 3.75)
    desk.vitals.end()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(1, 7.5)
    desk.vitals.end()


def question(desk: Desk, source: int = 3) -> dict[str, Any]:
    """What a rank answers."""
    desk.sent.clear()
    desk.vitals.receive(source, {"kind": "ask", "at": 17.5})
    ((to, answer),) = desk.sent
    assert to == source
    assert answer["asked_at"] == 17.5
    return answer


def test_who_is_asked_says_what_it_is_at():
    desk = Desk()
    desk.vitals.comparisons["ring"] = 5
    answer = question(desk)
    assert (answer["status"], answer["comparisons"]) == ("attention, hop 1 of 3", {"ring": 5})
    assert (answer["idle_for"], answer["lag"], answer["chain"]) == (0.0, 0.0, [])


def test_who_waits_says_for_whom_and_how_long_in_vain():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 1.0)
    desk.answer(2, idle_for=0.75, lag=LINK, chain=[[1, "hop 0", False]])
    desk.wait(2, 2.5)
    answer = question(desk)
    assert (answer["idle_for"], answer["lag"]) == (2.25, 2 * LINK)
    assert answer["chain"] == [[2, "attention, hop 2 of 3", True], [1, "hop 0", False]]


def test_who_computes_while_it_waits_is_at_work():
    desk = Desk()
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 2.0)
    desk.vitals.computing = True
    answer = question(desk)
    assert (answer["idle_for"], answer["lag"], answer["chain"]) == (0.0, 0.0, [])


def test_a_chain_names_at_most_so_many_ranks():
    desk = Desk(size=100)
    desk.vitals.begin(TIMEOUT, "ring")
    desk.wait(2, 1.0)
    desk.answer(2, chain=[[rank, "hop 0", True] for rank in range(3, 99)])
    assert len(question(desk)["chain"]) == 16


# ---------------------------------------------------------------- a peer that has gone on


def test_data_of_a_rank_that_has_gone_on_to_another_call_will_not_come():
    desk = Desk()
    desk.vitals.comparisons["ring"] = 2
    desk.vitals.begin(600.0, "ring")
    with pytest.raises(PeerFailed, match="gone on to another call") as caught:
        desk.talk(2, 20.0, for_data=True, idle_for=0.0, comparisons={"ring": 3}, status="allreduce")
    assert desk.now <= 5
    for text in ("rank 0 of 4", "attention, hop 1 of 3", "rank 2 of 4", "allreduce"):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("comparisons", "for_data"),
    [({"ring": 2}, True), ({"ring": 1}, True), ({}, True), ({"another": 9}, True), ({"ring": 3}, False)],
)
def test_a_rank_at_the_same_call_or_in_another_group_has_not_gone_on(comparisons, for_data):
    desk = Desk()
    desk.vitals.comparisons["ring"] = 2
    desk.vitals.begin(600.0, "ring")
    desk.talk(2, 20.0, for_data=for_data, idle_for=0.0, comparisons=comparisons)


def test_what_was_sent_before_going_on_has_time_to_arrive():
    """Two periods, of which those do not count in which this rank was suspended."""
    desk = Desk()
    desk.vitals.begin(600.0, "ring")
    desk.wait(2, 1.0, for_data=True)
    desk.answer(2, comparisons={"ring": 1})
    desk.now += 1000.0
    desk.wait(2, 1002.75, for_data=True)
    with pytest.raises(PeerFailed):
        desk.wait(2, 1010.0, for_data=True)


# ---------------------------------------------------------------- letters of those who give up


def test_a_timeout_that_another_rank_tells_of_names_the_silent_one():
    desk, other = Desk(0), Desk(3)
    letter = other.vitals.failure("rank 3 of 4 has waited 4 s for rank 1", 1, True)
    with pytest.raises(
        PeerTimeout, match=r"for rank 1 \(told by rank 3 to rank 0 of 4, at attention, hop 1 of 3\)"
    ) as caught:
        desk.vitals.receive(3, letter)
    assert caught.value.peer == 1
    assert desk.vitals.broken is caught.value


def test_a_rank_that_was_taken_for_dead_is_told_by_whom():
    desk, other = Desk(1), Desk(3)
    with pytest.raises(
        PeerFailed, match=r"rank 1 of 4 .* waited for too long\. rank 3 of 4 has waited 4 s for rank 1"
    ):
        desk.vitals.receive(3, other.vitals.failure("rank 3 of 4 has waited 4 s for rank 1", 1, True))


def test_a_failure_names_the_rank_where_the_cause_is_and_what_this_one_was_at():
    desk, other = Desk(0), Desk(3)
    with pytest.raises(PeerFailed) as caught:
        desk.vitals.receive(3, other.vitals.failure("MemoryError in attention, hop 2 of 3", None, False))
    for text in (
        "rank 0 of 4",
        "attention, hop 1 of 3",
        "rank 3 of 4",
        "MemoryError in attention, hop 2 of 3",
    ):
        assert text in str(caught.value)
