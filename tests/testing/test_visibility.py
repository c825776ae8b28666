"""The reference's predicates against the definition, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

from ringcore.testing import oracle, visibility

S_Q, S_K = 7, 9


def number(lengths, position):
    """Index of the document that holds a position, None behind the last."""
    start = 0
    for index, length in enumerate(lengths):
        if start <= position < start + length:
            return index
        start += length
    return None


def same_document(lengths, i, j, k_lengths=None):
    mine = number(lengths, i)
    return mine is not None and mine == number(k_lengths or lengths, j)


CASES = [
    (oracle.full(), lambda i, j: True),
    (oracle.causal(), lambda i, j: j <= i),
    (oracle.causal(2), lambda i, j: j <= i + 2),
    (oracle.causal(-3), lambda i, j: j <= i - 3),
    (oracle.window(2, 1), lambda i, j: j in (i - 2, i - 1, i, i + 1)),
    (oracle.window(0, 0), lambda i, j: j == i),
    (oracle.window(None, 1), lambda i, j: j <= i + 1),
    (oracle.window(1, None), lambda i, j: j >= i - 1),
    (oracle.window(None, None), lambda i, j: True),
    (oracle.keys(2, 5), lambda i, j: j in (2, 3, 4)),
    (oracle.keys(4, 4), lambda i, j: False),
    (oracle.prefix(3), lambda i, j: j in (0, 1, 2)),
    (oracle.documents([2, 0, 3]), lambda i, j: same_document([2, 0, 3], i, j)),
    (oracle.documents([2, 0, 99]), lambda i, j: same_document([2, 0, 99], i, j)),
    (oracle.documents([3, 2, 2], [1, 0, 5]), lambda i, j: same_document([3, 2, 2], i, j, [1, 0, 5])),
    (oracle.padding(4), lambda i, j: j < 4),
    (oracle.global_tokens([1, 5]), lambda i, j: i in (1, 5) or j in (1, 5)),
    (oracle.causal() & oracle.prefix(2), lambda i, j: j <= i and j < 2),
    (oracle.causal() | oracle.prefix(2), lambda i, j: j <= i or j < 2),
    (~oracle.window(1, 1), lambda i, j: abs(i - j) > 1),
]


@pytest.mark.parametrize(("visible", "predicate"), CASES, ids=lambda x: repr(x) if hasattr(x, "see") else "")
def test_table_is_the_predicate_of_each_pair(visible, predicate):
    table = visible.table(S_Q, S_K)
    assert table.dtype == np.bool_
    assert table.tolist() == [[bool(predicate(i, j)) for j in range(S_K)] for i in range(S_Q)]


def test_documents_and_padding_of_each_row():
    lengths = np.array([[[2, 5], [7, 0]], [[0, 3], [1, 1]], [[9, 9], [4, 0]]])  # B = (3, 2), two documents
    table = oracle.documents(lengths).table(S_Q, S_K)
    ends = lengths.sum(-1)
    padded = oracle.padding(ends).table(S_Q, S_K)
    assert table.shape == padded.shape == (3, 2, 1, S_Q, S_K)
    for row in np.ndindex(3, 2):
        for i, j in np.ndindex(S_Q, S_K):
            assert table[(*row, 0, i, j)] == same_document(list(lengths[row]), i, j)
            assert padded[(*row, 0, i, j)] == (j < ends[row])


def test_rows_join_what_is_the_same_for_all_rows():
    table = (oracle.padding([1, 3]) & oracle.causal()).table(3, 3)
    assert table.shape == (2, 1, 3, 3)
    assert table[0, 0].tolist() == [[True, False, False]] * 3
    assert table[1, 0].tolist() == np.tri(3, dtype=bool).tolist()


def test_dense_is_its_array():
    bits = np.random.default_rng(0).random((2, 3, 4, 5)) < 0.5
    np.testing.assert_array_equal(oracle.dense(bits).table(4, 5), bits)
    np.testing.assert_array_equal(
        (oracle.dense(bits) & oracle.causal()).table(4, 5), bits & np.tri(4, 5, dtype=bool)
    )


@pytest.mark.parametrize("size", [(0, 0), (0, 3), (3, 0)])
def test_nothing_to_see(size):
    for name in ("full", "causal"):
        assert getattr(visibility, name)().table(*size).shape == size
    assert oracle.documents([0, 2]).table(*size).shape == size


def test_an_expression_says_what_it_is():
    mask = ~(oracle.causal(1) & oracle.documents([2, 3])) | oracle.window(None, 0)
    assert repr(mask) == "(~(causal(1) & documents([2, 3])) | window(None, 0))"
