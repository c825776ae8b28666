"""Counts over 2^31 - 1 (CASES 28): long messages travel in pieces, which no test can send in earnest."""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ringcore_mpi.pieces import PIECE, pieces

from tests.mpirun import mpiexec
from tests.transports.mpi.launching import PROGRAMS, run

MOST = 2**31 - 1  # elements that MPI's calls count


@given(nbytes=st.integers(0, 2**45), piece=st.sampled_from([PIECE, 2**31 - 1, 10**9]))
def test_pieces_cover_a_message_from_end_to_end(nbytes, piece):
    found = pieces(nbytes, piece)
    assert (found[0].start, found[-1].stop) == (0, nbytes)
    assert all(a.stop == b.start for a, b in pairwise(found))
    sizes = [part.stop - part.start for part in found]
    assert max(sizes) <= piece <= MOST
    assert nbytes == 0 or min(sizes) > 0
    assert len(found) == max(1, -(-nbytes // piece))


@pytest.mark.parametrize(
    ("nbytes", "count"), [(0, 1), (1, 1), (PIECE, 1), (PIECE + 1, 2), (MOST + 1, 2), (2**33, 8)]
)
def test_as_few_pieces_as_there_can_be(nbytes, count):
    assert len(pieces(nbytes)) == count


def test_what_is_posted_of_messages_of_gigabytes(tmp_path):
    """To a communicator that only takes notes, of arrays that take no memory; MPI is not even started."""
    mpiexec()  # skips where there is no mpi4py
    job = run(tmp_path, 1, [sys.executable, str(PROGRAMS / "pieces.py")], 60.0)
    assert job.code == 0, job.text
    posted = json.loads(job.text)
    assert [call["what"] for call in posted] == ["Irecv"] * 6 + ["Isend"] * 4  # receives first
    assert max(call["count"] for call in posted) <= MOST
    by_message: dict[tuple[str, int, int], list[int]] = {}
    for call in posted:
        by_message.setdefault((call["what"], call["peer"], call["tag"]), []).append(call["count"])
    assert by_message == {
        ("Irecv", 1, 4): [2**30, 2**30, 2**30, 2**30, 5],
        ("Irecv", 2, 4): [0],
        ("Isend", 1, 4): [2**30, 2**30, 2**30, 7],
    }
    starts = [call["start"] for call in posted if (call["what"], call["peer"]) == ("Irecv", 1)]
    assert starts == [0, 2**30, 2 * 2**30, 3 * 2**30, 4 * 2**30]
