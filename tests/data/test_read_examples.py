"""Parts of clients joined into examples, and the rows that clients own."""

import numpy as np
import pytest

from fedbench.data.dataset import Rows, share_of
from fedbench.data.examples import Part, join, numbered


def part(name, held_out, labels):
    return Part(
        name, held_out, np.array(labels, dtype=float).reshape(-1, 1), np.array(labels, dtype=float)
    )


def test_parts_are_joined_client_by_client():
    parts = [
        part("b", False, [0, 1]),
        part("a", False, [2]),
        part("b", True, [1]),
        part("c", True, []),
    ]
    examples = join(parts, classes=3)
    assert examples.names == ("b", "a", "c")
    assert examples.owner.tolist() == [0, 0, 1, 0]
    assert (examples.y.tolist(), examples.y.dtype) == ([0, 1, 2, 1], np.int64)
    assert examples.x[:, 0].tolist() == [0, 1, 2, 1]
    assert examples.held_out.tolist() == [False, False, False, True]
    assert join([part("a", None, [0])], classes=1).held_out is None


@pytest.mark.parametrize(("count", "names"), [(2, ("a_0", "a_1")), (11, ("a_00", "a_10"))])
def test_names_sort_in_order(count, names):
    numbers = numbered("a", count)
    assert (numbers[0], numbers[-1], len(numbers)) == (*names, count)
    assert sorted(numbers) == list(numbers)


def test_rows_of_some_clients_and_their_labels():
    rows = Rows.of([np.array([4, 0]), np.array([], dtype=int), np.array([1])])
    assert rows.owners.tolist() == [0, 0, 2]
    assert rows.label_counts(np.array([1, 0, 0, 0, 2]), 3).tolist() == [
        [0, 1, 1],
        [0, 0, 0],
        [1, 0, 0],
    ]
    assert [owned.tolist() for owned in rows.select(np.array([2, 0])).split()] == [[1], [4, 0]]


def test_a_share_is_rounded_down_but_for_rounding_errors():
    assert share_of(np.array([10, 9, 0]), 0.7).tolist() == [7, 6, 0]
