"""Examples become the data of clients: owners, splits, test sets, and what is left out."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import rejected

from fedbench.data.assemble import assemble
from fedbench.data.describe import facts, label_counts
from fedbench.data.examples import Examples
from fedbench.data.partitions.basic import iid
from fedbench.data.partitions.label import consecutive_classes

OWNER = np.arange(200) % 20
HELD_OUT = np.arange(200) >= 160


def examples(held_out=None, owner=None):
    names = () if owner is None else tuple(f"u{k}" for k in range(owner.max() + 1))
    return Examples(
        x=np.arange(200.0)[:, None],
        y=np.random.default_rng(1).integers(0, 4, 200),
        classes=4,
        owner=owner,
        names=names,
        held_out=held_out,
    )


def assembled(given, **options):
    defaults = {"partition": None, "clients": None, "split": 0.8, "local_test": "split", "seed": 0}
    return assemble(given, **(defaults | options))


def owned_by(data, k):
    return [rows.split()[k].tolist() for rows in (data.train, data.test)]


def all_of(data, k):
    train, test = owned_by(data, k)
    return sorted(train + test)


@given(
    st.floats(0.05, 1.0),
    st.integers(0, 5),
)
def test_split_takes_the_share_and_loses_nothing(split, seed):
    sizes = [1, 3, 10, 86, 100]
    owner = np.random.default_rng(seed).permutation(np.repeat(np.arange(5), sizes))
    data = assembled(
        examples(owner=owner),
        split=split,
        seed=seed,
    )
    for k, size in enumerate(sizes):
        train, _ = owned_by(data, k)
        assert len(train) == int(split * size + 1e-9)
        assert train == sorted(train)  # stored order
        assert all_of(data, k) == np.flatnonzero(owner == k).tolist()


def test_split_is_deterministic_in_its_own_seed():
    first, again, other = (assembled(examples(owner=OWNER), seed=seed) for seed in (1, 1, 2))
    assert owned_by(first, 2) == owned_by(again, 2)
    assert owned_by(first, 2) != owned_by(other, 2)


def test_fewer_clients_are_a_choice_by_the_data_seed():
    data = assembled(examples(owner=OWNER), clients=5)
    assert data.num_clients == 5
    for k, name in enumerate(data.names):
        assert set(OWNER[all_of(data, k)]) == {int(name[1:])}
    assert data.names != assembled(examples(owner=OWNER), clients=5, seed=1).names


def test_official_test_examples_follow_the_training_shares():
    e = examples(held_out=HELD_OUT)
    data = assembled(e, partition=iid, clients=4, local_test="official")
    everything = []
    for k in range(4):
        train, test = owned_by(data, k)
        assert not HELD_OUT[train].any()
        everything += test
        for label in range(4):
            share = (e.y[train] == label).sum() / (e.y[~HELD_OUT] == label).sum()
            expected = share * (e.y[HELD_OUT] == label).sum()
            assert (e.y[test] == label).sum() == pytest.approx(expected, abs=1)
    assert sorted(everything) == np.flatnonzero(HELD_OUT).tolist()


def test_a_central_test_set_is_every_client_s():
    data = assembled(
        examples(held_out=HELD_OUT),
        partition=iid,
        clients=4,
        local_test="central",
    )
    parts = [owned_by(data, k) for k in range(4)]
    assert [test for _, test in parts] == [list(range(160, 200))] * 4
    assert label_counts(data).sum() == 160
    assert "160 to train on, 40 to test on, the same for all clients" in facts(data)["examples"]


def test_a_central_test_set_of_given_owners_is_the_union_of_theirs():
    split = assembled(examples(owner=OWNER), clients=5)
    central = assembled(
        examples(owner=OWNER),
        clients=5,
        local_test="central",
    )
    union = sorted(split.test.index.tolist())
    assert len(union) == 10
    for k in range(5):
        assert owned_by(central, k) == [owned_by(split, k)[0], union]


@pytest.mark.parametrize(
    "held_out",
    [None, np.arange(200) % 3 == 0],
)
def test_other_clients_as_a_test_set(held_out):
    """The clients train on all they have; the test examples are all of clients that do not
    train."""
    e = examples(owner=OWNER, held_out=held_out)
    data = assembled(e, clients=5, local_test="others", test_clients=3)
    trained = set()
    for k, name in enumerate(data.names):
        train, test = owned_by(data, k)
        assert len(train) == 10
        assert {e.names[owner] for owner in OWNER[train]} == {name}
        assert sorted(test) == sorted(data.test.index.tolist())
        trained |= set(OWNER[train])
    tested = set(OWNER[data.test.index])
    assert len(data.test.index) == 30  # stored once
    assert len(tested) == 3
    assert not tested & trained
    assert data.central


def test_auto_takes_the_test_examples_of_given_owners_or_splits():
    held_out = np.arange(200) % 4 == 0
    own = assembled(
        examples(owner=OWNER, held_out=held_out),
        local_test="auto",
    )
    assert sorted(own.test.index.tolist()) == np.flatnonzero(held_out).tolist()
    split = assembled(examples(), partition=iid, clients=4, local_test="auto")
    assert len(split.test.index) == 40


def two_parts(y, clients, rng):
    return [np.arange(150), np.arange(150, 157)]


def test_what_nobody_has_is_counted():
    e = examples(held_out=HELD_OUT)
    left_out = "left out: 3 by the partition, 40 of the test examples set apart"
    assert assembled(e, partition=two_parts, clients=2).sources == (left_out,)
    noted = replace(e, sources=("note",))
    assert assembled(noted, partition=two_parts, clients=2).sources == ("note", left_out)
    assert assembled(examples(), partition=iid, clients=4).sources == ()


def test_shared_examples_are_counted():
    """4 clients of 6 examples of 2 classes, the same first 3 of each class; half of each client's
    are for testing."""
    e = Examples(
        np.zeros((20, 1)),
        np.repeat([0, 1], 10),
        2,
    )
    # int(6 / 2) of each
    rule = partial(
        consecutive_classes,
        classes_per_client=2,
        mu=0,
        sigma=0,
        as_published=True,
    )
    data = assembled(e, partition=rule, clients=4, split=0.5)
    assert data.shares_examples
    train = data.train.index.tolist()
    test = data.test.index.tolist()
    assert len({*train, *test}) == 6
    assert (len(train), len(test)) == (12, 12)
    leaked = sum(row in train for row in test)
    assert data.sources[-2:] == (
        "left out: 14 by the partition",
        f"shared by clients: 12 training examples, {len(set(train))} of them distinct; "
        f"{leaked} test examples of a client are training examples of some client",
    )


DIVIDED = {"partition": iid, "clients": 4}
OTHERS = {"local_test": "others", "test_clients": 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "not divided among clients; type data.partition=iid data.clients=10"),
        (DIVIDED | {"local_test": "official"}, "official needs a data set with test examples"),
        (
            {"partition": iid, "clients": 200, "split": 0.5},
            "no client has a training example with data.split=0.5",
        ),
        (DIVIDED | OTHERS, "a data set that assigns examples to clients itself"),
    ],
)
def test_refusals_without_owners(options, message):
    with rejected(message):
        assembled(examples(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 21}, "between 1 and 20 .this data set has 20 clients., got 21"),
        (OTHERS | {"clients": 18}, "between 1 and 17 .* of which data.test_clients takes 3"),
        ({"local_test": "others"}, "and the other way round"),
    ],
)
def test_refusals_with_owners(options, message):
    with rejected(message):
        assembled(examples(owner=OWNER), **options)


def test_given_test_examples_are_not_split_again():
    e = examples(owner=OWNER, held_out=HELD_OUT)
    with rejected("data.local_test=split is not available"):
        assembled(e)
