"""Parts of clients joined into examples, and the rows that clients own."""

import numpy as np
import pytest
from data_files import check

from fedbench.data.dataset import Rows, share_of
from fedbench.data.examples import Part, join, numbered


def part(name, held_out, labels):
    y = np.array(labels, dtype=float)
    return Part(
        name,
        held_out,
        y.reshape(-1, 1),
        y,
    )


def test_parts_are_joined_client_by_client():
    first = part("b", False, [0, 1])
    second = part("a", False, [2])
    third = part("b", True, [1])
    empty = part("c", True, [])
    examples = join([first, second, third, empty], classes=3)
    check(
        examples,
        names=("b", "a", "c"),
        owner=[0, 0, 1, 0],
        y=[0, 1, 2, 1],
        held_out=[False, False, False, True],
    )
    assert examples.y.dtype == np.int64
    assert examples.x[:, 0].tolist() == [0, 1, 2, 1]
    assert join([part("a", None, [0])], classes=1).held_out is None


@pytest.mark.parametrize(
    ("count", "names"),
    [(2, ("a_0", "a_1")), (11, ("a_00", "a_10"))],
)
def test_names_sort_in_order(count, names):
    numbers = numbered("a", count)
    assert len(numbers) == count
    assert (numbers[0], numbers[-1]) == names
    assert sorted(numbers) == list(numbers)


def test_rows_of_some_clients_and_their_labels():
    rows = Rows.of([np.array([4, 0]), np.array([], dtype=int), np.array([1])])
    assert rows.owners.tolist() == [0, 0, 2]
    counts = rows.label_counts(
        np.array([1, 0, 0, 0, 2]),
        3,
    )
    assert counts.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    selected = rows.select(np.array([2, 0])).split()
    assert [owned.tolist() for owned in selected] == [[1], [4, 0]]


def test_a_share_is_rounded_down_but_for_rounding_errors():
    assert share_of(np.array([10, 9, 0]), 0.7).tolist() == [7, 6, 0]
