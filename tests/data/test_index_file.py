"""Partitions from files: every format means the same clients, and wrong content is named."""

import numpy as np
import pytest
from data_files import cases, write
from tools import rejected

from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.data.partitions.basic import iid
from fedbench.data.partitions.given import Given, checked, indices
from fedbench.data.partitions.given import write as write_indices
from fedbench.runs.build_data import as_given

# ten examples, of which the last three are official test examples
Y = np.arange(10) % 2
HELD_OUT = np.arange(10) >= 7
EXAMPLES = Examples(
    x=np.arange(10.0)[:, None],
    y=Y,
    classes=2,
    held_out=HELD_OUT,
)


def read(path, content):
    write(path, content)
    return indices(Y, HELD_OUT, file=str(path))


def lists(parts):
    return [rows.tolist() for rows in parts]


# the same clients in every format
FLAT = """
[[4, 0, 2], [1, 6]]
{"client_0": [4, 0, 2], "client_1": [1, 6]}
{"client_names":["client_0","client_1"],"client_0":{"data":[4,0,2]},"client_1":{"data":[1,6]}}
{"clients": {"client_0": [4, 0, 2], "client_1": [1, 6]}, "examples": 10}
"""


@pytest.mark.parametrize(
    "content",
    FLAT.strip().splitlines(),
)
def test_training_indices_alone(tmp_path, content):
    given = read(tmp_path / "p.json", content)
    assert given.names == ("client_0", "client_1")
    assert lists(given.train) == [[0, 2, 4], [1, 6]]
    assert given.test is None
    assert given.shared is None


def test_training_and_test_indices(tmp_path):
    content = '[{"train": [4, 0], "test": [3]}, {"train": [1], "test": [9, 5]}]'
    given = read(tmp_path / "p.json", content)
    assert given.names == ("client_0", "client_1")
    assert lists(given.train) == [[0, 4], [1]]
    assert lists(given.test) == [[3], [5, 9]]


WRONG = r"""
[[0], [1, 10]]                          the examples of client_1: 10 is not among the 10 examples
[[0], [-1]]                             the examples of client_1: -1 is not among
[[0, 4], [1, 4]]                        example 4 is listed twice; every example has
[[0], [1, 1]]                           example 1 is listed twice
[{"train": [2], "test": [2]}]           example 2 is listed twice
[[0], [0.5]]                            client_1 must be integers, .* got float64 \[1\]
[[0], ["one"]]                          client_1 must be integers
[[0], [[1], [6]]]                       client_1 must be integers, one per .* got int64 \[2, 1\]
{"a": [0], "b": [], "c": []}            without examples: \['b', 'c'\]; remove these clients
[]                                      must have clients
"abc"                                   indices per client \(got str\); it must be a \.json file
{"clients": {"a": [0]}, "examples": 9}  divides 9 examples, and this source has 10; use
{"a": [0], "b": {"train": [1]}}         cannot be read as indices per client .* it must be
{"a": {"train": [0]}}                   cannot be read as indices per client \('test'\)
{"clients": {"a": {"train": [0], "test": [1]}}, "shared_test": [2]}  of each client and shared
{                                       p\.json .*cannot be read as indices per client
"""


@pytest.mark.parametrize(("content", "message"), cases(WRONG))
def test_wrong_content_is_named(tmp_path, content, message):
    with rejected(message):
        read(tmp_path / "p.json", content)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a",), "rule must have examples of 1 clients, as many as it has names"),
        (("a", "a"), "rule must have clients, and a different name for each"),
    ],
)
def test_names_of_a_rule(names, message):
    given = Given(
        names,
        [np.array([0]), np.array([1])],
    )
    with rejected(message):
        checked(given, 10, "rule")


def with_given(given, local_test="auto", clients=None):
    return assemble(
        EXAMPLES, partition=given, clients=clients, split=0.5, local_test=local_test, seed=3
    )


FLAT_GIVEN = Given(
    ("a", "b"),
    [np.array([0, 2, 4]), np.array([1, 6])],
)
SPLIT_GIVEN = FLAT_GIVEN._replace(test=[np.array([3]), np.array([5])])
TESTS_GIVEN = Given(
    ("a", "b"),
    [np.array([0]), np.array([8])],
)


def test_test_examples_as_asked():
    own = with_given(FLAT_GIVEN)
    assert own.train.counts.tolist() == [1, 1]  # int(0.5 * 3), int(0.5 * 2)
    assert own.test.counts.tolist() == [2, 1]
    assert own.sources == ("left out: 2 by the partition, 3 of the test examples set apart",)
    central = with_given(FLAT_GIVEN, "central")
    assert lists(central.train.split()) == [[0, 2, 4], [1, 6]]
    assert lists(central.test.split()) == [[7, 8, 9]] * 2
    assert central.central
    # of class 0, rows 0 2 4 6, client a has three and b one: of the one test example a gets
    # rint(0.75); class 1 is b's
    assert lists(with_given(FLAT_GIVEN, "official").test.split()) == [[8], [7, 9]]
    assert lists(with_given(SPLIT_GIVEN).test.split()) == [[3], [5]]


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (FLAT_GIVEN, {"clients": 3}, "the partition has 2 clients; type data.clients=2"),
        (SPLIT_GIVEN, {"local_test": "central"}, "but the partition has test examples"),
        (TESTS_GIVEN, {"local_test": "central"}, "gives some of them to clients; use data.local"),
    ],
)
def test_requests_that_contradict_the_partition(given, options, message):
    with rejected(message):
        with_given(given, **options)


@pytest.mark.parametrize("local_test", ["split", "official", "central"])
def test_the_round_trip_is_equal(tmp_path, local_test):
    made = assemble(
        EXAMPLES,
        partition=iid,
        clients=3,
        split=0.5,
        local_test=local_test,
        seed=1,
    )
    path = tmp_path / "p.json"
    write_indices(path, "d", 10, as_given(made))
    again = with_given(
        indices(Y, HELD_OUT, file=str(path)),
        clients=3,
    )
    assert again.names == made.names
    assert again.central == made.central
    assert lists(again.train.split()) == lists(made.train.split())
    assert lists(again.test.split()) == lists(made.test.split())


SHARED = (
    "data.file=d.npz data.clients=8 data/partition=consecutive_classes data.partition.mu=0 "
    "data.partition.classes_per_client=2 data.partition.as_published=true"
)


def test_examples_of_several_clients_are_no_file(fed, tmp_path):
    np.savez(
        tmp_path / "d.npz",
        x=np.eye(60),
        y=np.arange(60) % 3,
    )
    status, _, err = fed(
        "data",
        "export-partition",
        "npz",
        "p.json",
        *SHARED.split(),
    )
    assert status == 2
    assert err.startswith("fedbench: some examples belong to several clients")
    assert not (tmp_path / "p.json").exists()


IID = "data.file=d.npz data/partition=iid data.clients=4"


def test_validation_examples_are_exported_as_training_examples(fed, tmp_path):
    np.savez(
        tmp_path / "d.npz",
        x=np.eye(60),
        y=np.arange(60) % 3,
    )
    for name, share in (("without.json", 0), ("with.json", 0.2)):
        keys = (*IID.split(), f"data.validation={share}")
        status, _, _ = fed("data", "export-partition", "npz", name, *keys)
        assert status == 0
    assert (tmp_path / "with.json").read_text() == (tmp_path / "without.json").read_text()
