"""Partitions from files: every format means the same clients, and what does not fit is named."""

import json

import numpy as np
import pytest

from fedbench.core.errors import RequestError
from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.data.partitions.basic import iid
from fedbench.data.partitions.given import Given, checked, indices, write
from fedbench.runs.build_data import as_given

# ten examples, of which the last three are official test examples
Y = np.arange(10) % 2
HELD_OUT = np.arange(10) >= 7
EXAMPLES = Examples(x=np.arange(10.0)[:, None], y=Y, classes=2, held_out=HELD_OUT)
A, B = [4, 0, 2], [1, 6]
A_TEST, B_TEST = [3], [5, 9]
FLAT = {
    "list.json": [A, B],
    "names.json": {"client_0": A, "client_1": B},
    "flgo.json": {
        "client_names": ["client_0", "client_1"], "server_data": [0, 1, 2], "rawdata_path": "x",
        "client_0": {"data": A}, "client_1": {"data": B},
    },
    "fedbench.json": {"clients": {"client_0": A, "client_1": B}, "examples": 10},
}  # fmt: skip
SPLIT = {
    "list.json": [{"train": A, "test": A_TEST}, {"train": B, "test": B_TEST}],
}  # fmt: skip


def save(path, content):
    path.write_text(json.dumps(content))
    return str(path)


def read(path, content):
    return indices(Y, HELD_OUT, file=save(path, content))


@pytest.mark.parametrize("name", FLAT)
def test_training_indices_alone(tmp_path, name):
    given = read(tmp_path / name, FLAT[name])
    assert given.names == ("client_0", "client_1")
    assert [rows.tolist() for rows in given.train] == [sorted(A), sorted(B)]
    assert given.test is None
    assert given.shared is None


@pytest.mark.parametrize("name", SPLIT)
def test_training_and_test_indices(tmp_path, name):
    given = read(tmp_path / name, SPLIT[name])
    assert given.names == ("client_0", "client_1")
    assert [rows.tolist() for rows in given.train] == [sorted(A), sorted(B)]
    assert [rows.tolist() for rows in given.test] == [A_TEST, B_TEST]


WRONG = {
    "out of range": ([A, [1, 10]], "the examples of client_1: 10 is not among the 10 examples of the source"),
    "negative": ([A, [-1]], r"the examples of client_1: -1 is not among"),
    "two owners": ([A, [1, 4]], r"example 4 is listed twice; every example has"),
    "twice": ([A, [1, 6, 1]], r"example 1 is listed twice"),
    "trained and tested": ([{"train": A, "test": [2]}], r"example 2 is listed twice"),
    "no integers": ([A, [0.5]], r"the examples of client_1 must be integers, .* got float64 \[1\]"),
    "words": ([A, ["one"]], r"client_1 must be integers"),
    "nested": ([A, [[1], [6]]], r"client_1 must be integers, one per example, got int64 \[2, 1\]"),
    "empty client": ({"a": A, "b": [], "c": []}, r"without examples: \['b', 'c'\]; remove these clients"),
    "no clients": ([], "must have clients"),
    "no lists": ("abc", r"cannot be read as indices per client \(got str\); it must be a \.json file"),
    "another data set": ({"clients": {"a": A}, "examples": 60000}, "divides 60000 examples, and this source has 10; u"),
    "mixed": ({"a": A, "b": {"train": B, "test": []}}, "cannot be read as indices per client .* it must be"),
    "half": ({"a": {"train": A}}, r"cannot be read as indices per client \('test'\)"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_what_does_not_fit_is_named(tmp_path, fault):
    content, message = WRONG[fault]
    with pytest.raises(RequestError, match=message):
        read(tmp_path / "p.json", content)


def test_files_that_are_none(tmp_path):
    with pytest.raises(
        RequestError, match=r"no\.json of data\.partition\.file cannot be read .*No such file"
    ):
        indices(Y, HELD_OUT, file=str(tmp_path / "no.json"))
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(
        RequestError,
        match=r"p\.json of data.partition.file cannot be read as indices per client",
    ):
        indices(Y, HELD_OUT, file=str(tmp_path / "p.json"))
    (tmp_path / "p.csv").write_text("0,1")
    with pytest.raises(
        RequestError,
        match=r"p\.csv of data\.partition\.file cannot be read .* it must be a \.json file",
    ):
        indices(Y, HELD_OUT, file=str(tmp_path / "p.csv"))


def test_lengths_of_a_rule():
    two = [np.array(A), np.array(B)]
    with pytest.raises(
        RequestError, match="rule must have examples of 1 clients, as many as it has names"
    ):
        checked(Given(("a",), two), 10, "rule")
    with pytest.raises(RequestError, match="rule must have clients, and a different name for each"):
        checked(Given(("a", "a"), two), 10, "rule")


def with_given(given, local_test="auto", clients=None):
    return assemble(
        EXAMPLES, partition=given, clients=clients, split=0.5, local_test=local_test, seed=3
    )  # fmt: skip


FLAT_GIVEN = Given(("a", "b"), [np.array([0, 2, 4]), np.array([1, 6])])


def test_test_examples_as_asked():
    own = with_given(FLAT_GIVEN)
    assert [len(r) for r in own.train.split()] == [1, 1]  # int(0.5 * 3), int(0.5 * 2)
    assert [len(r) for r in own.test.split()] == [2, 1]
    assert own.sources == ("left out: 2 by the partition, 3 of the test examples set apart",)
    central = with_given(FLAT_GIVEN, "central")
    assert [r.tolist() for r in central.train.split()] == [[0, 2, 4], [1, 6]]
    assert [r.tolist() for r in central.test.split()] == [[7, 8, 9]] * 2
    assert central.central
    official = with_given(FLAT_GIVEN, "official")
    # of class 0, rows 0 2 4 6, client a has three and b one: of the one test example a gets
    # rint(0.75); class 1 is b's
    assert [r.tolist() for r in official.test.split()] == [[8], [7, 9]]


def test_requests_that_contradict_the_partition():
    with pytest.raises(
        RequestError,
        match=r"data\.clients=3, but the partition has 2 clients; type data\.clients=2",
    ):
        with_given(FLAT_GIVEN, clients=3)
    split = FLAT_GIVEN._replace(test=[np.array([3]), np.array([5])])
    with pytest.raises(
        RequestError, match=r"data\.local_test=central, but the partition has test examples"
    ):
        with_given(split, "central")
    trained = Given(("a", "b"), [np.array([0]), np.array([8])])
    with pytest.raises(
        RequestError, match=r"gives some of them to clients; use data\.local_test=split"
    ):
        with_given(trained, "central")
    assert [r.tolist() for r in with_given(split).test.split()] == [[3], [5]]


@pytest.mark.parametrize("local_test", ["split", "official", "central"])
def test_the_round_trip_is_equal(tmp_path, local_test):
    made = assemble(EXAMPLES, partition=iid, clients=3, split=0.5, local_test=local_test, seed=1)
    path = tmp_path / "p.json"
    write(path, "d", 10, as_given(made))
    again = with_given(indices(Y, HELD_OUT, file=str(path)), clients=3)
    assert again.names == made.names
    assert again.central == made.central
    for split in ("train", "test"):
        ours, theirs = getattr(again, split).split(), getattr(made, split).split()
        assert [r.tolist() for r in ours] == [r.tolist() for r in theirs]


def test_examples_of_several_clients_are_no_file(fed, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.eye(60), y=np.arange(60) % 3)
    rule = "partition.mu=0 partition.sigma=0 partition.classes_per_client=2 partition.as_published=true clients=8"
    keys = [
        "data/partition=consecutive_classes",
        *(f"data.{key}" for key in f"file=d.npz {rule}".split()),
    ]
    status, _, err = fed("data", "export-partition", "npz", "p.json", *keys)
    assert (status, err.partition(";")[0]) == (
        2, "fedbench: some examples belong to several clients, which an index file cannot express",
    )  # fmt: skip
    assert not (tmp_path / "p.json").exists()
