from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.core.errors import RequestError
from fedbench.data.assemble import assemble
from fedbench.data.describe import facts, label_counts
from fedbench.data.examples import Examples
from fedbench.data.partitions.basic import dirichlet_min_share, iid, two_classes_power_law

labels = st.lists(st.integers(0, 4), min_size=30, max_size=200).map(np.array)


def nobody_twice(owned, y):
    rows = np.concatenate(owned)
    assert len(rows) == len(set(rows.tolist()))
    assert rows.min() >= 0
    assert rows.max() < len(y)
    return rows


@given(labels, st.integers(1, 20), st.integers(0, 9))
def test_iid_loses_nothing_and_is_even(y, clients, seed):
    owned = iid(y, clients, np.random.default_rng(seed))
    assert len(nobody_twice(owned, y)) == len(y)
    sizes = [len(o) for o in owned]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(labels, st.integers(1, 8), st.sampled_from([0.3, 1.0, 10.0]), st.integers(0, 9))
def test_dirichlet_keeps_its_word(y, clients, alpha, seed):
    """The shares are those of the first draw that gives everybody enough; what floors leave over is dropped."""
    rng, kinds = np.random.default_rng(seed), np.unique(y)
    sizes = np.array([[(y == c).sum()] for c in kinds])
    for _ in range(10_000):
        q = rng.dirichlet(np.full(clients, alpha), len(kinds))
        if (q.sum(0) >= 0.1 / clients).all() and (np.floor(q * sizes).sum(0) > 0).all():
            break
    else:
        with pytest.raises(RequestError):
            dirichlet_min_share(y, clients, np.random.default_rng(seed), alpha=alpha)
        return
    owned = dirichlet_min_share(y, clients, np.random.default_rng(seed), alpha=alpha)
    nobody_twice(owned, y)
    assert min(map(len, owned)) > 0
    for c, row in zip(kinds, q, strict=True):
        counts = [int((y[o] == c).sum()) for o in owned]
        assert counts == np.floor(row * (y == c).sum()).astype(int).tolist()


def test_dirichlet_ends_with_a_reason_where_no_draw_can_do():
    y = np.zeros(50, dtype=int)
    with pytest.raises(
        RequestError, match=r"no draw of data.partition.alpha=0.01 .*; raise data.partition.alpha"
    ):
        dirichlet_min_share(y, 40, np.random.default_rng(0), alpha=0.01)
    assert min(map(len, dirichlet_min_share(y, 40, np.random.default_rng(0), alpha=50))) > 0
    with pytest.raises(
        RequestError,
        match=r"no draw .* data.partition.min_share=2/2 of a class .* or data.partition.min_share",
    ):
        dirichlet_min_share(y, 2, np.random.default_rng(0), alpha=1, min_share=2)
    with pytest.raises(
        RequestError, match="data.clients must be at most 50, as there are 50 examples, got 51"
    ):
        dirichlet_min_share(y, 51, np.random.default_rng(0), alpha=1)


def test_two_classes_power_law():
    """Each client has its two classes and at least five of each; unused examples stay unused."""
    y = np.repeat(np.arange(10), 700)
    owned = two_classes_power_law(y, 100, np.random.default_rng(0))
    nobody_twice(owned, y)
    for i, rows in enumerate(owned):
        assert set(y[rows]) == {i % 10, (i + 1) % 10}
        assert np.bincount(y[rows], minlength=10)[[i % 10, (i + 1) % 10]].min() >= 5
    sizes = np.array([len(o) for o in owned])
    assert sizes.max() > 5 * np.median(sizes)  # a power law
    with pytest.raises(
        RequestError, match=r"class 0 has 9 examples.*lower data.clients or data.partition.least"
    ):
        two_classes_power_law(np.repeat(np.arange(10), 9), 10, np.random.default_rng(0))
    for clients, least in ((1, 5), (10, 4)):
        assert len(
            two_classes_power_law(
                np.repeat(np.arange(10), 9), clients, np.random.default_rng(0), least=least
            )
        )
    # a draw of e^400 and more
    wild = two_classes_power_law(y, 100, np.random.default_rng(0), sigma=400)
    nobody_twice(wild, y)
    assert min(map(len, wild)) >= 10


def examples(n=200, held_out=None, owner=None):
    rng = np.random.default_rng(1)
    names = () if owner is None else tuple(f"u{k}" for k in range(owner.max() + 1))
    return Examples(
        np.arange(n)[:, None] * 1.0,
        rng.integers(0, 4, n),
        4,
        owner=owner,
        names=names,
        held_out=held_out,
    )


OPTIONS = {"partition": None, "clients": None, "split": 0.8, "local_test": "split", "seed": 0}


def owned_by(data, k):
    return [r.split()[k].tolist() for r in (data.train, data.test)]


@given(st.floats(0.05, 1.0), st.integers(0, 5))
def test_split_takes_the_share_and_loses_nothing(split, seed):
    owner = np.repeat(np.arange(5), [1, 3, 10, 86, 100])
    data = assemble(examples(owner=owner), **{**OPTIONS, "split": split, "seed": seed})
    for k, n in enumerate((1, 3, 10, 86, 100)):
        train, test = owned_by(data, k)
        assert len(train) == int(split * n + 1e-9)
        assert sorted(train + test) == np.flatnonzero(owner == k).tolist()
        assert train == sorted(train)  # stored order


def test_split_is_deterministic_in_its_own_seed():
    owner = np.repeat(np.arange(4), 50)
    a, b, c = (assemble(examples(owner=owner), **{**OPTIONS, "seed": s}) for s in (1, 1, 2))
    assert owned_by(a, 2) == owned_by(b, 2)
    assert owned_by(a, 2) != owned_by(c, 2)


def test_owners_in_any_order_keep_their_examples():
    owner = np.random.default_rng(0).integers(0, 6, 200)
    data = assemble(examples(owner=owner), **OPTIONS)
    for k in range(6):
        assert sorted(sum(owned_by(data, k), [])) == np.flatnonzero(owner == k).tolist()


def test_fewer_clients_are_a_choice_by_the_data_seed():
    owner = np.repeat(np.arange(20), 10)
    data = assemble(examples(owner=owner), **{**OPTIONS, "clients": 5})
    assert data.num_clients == 5
    for k, name in enumerate(data.names):
        assert set(owner[sum(owned_by(data, k), [])]) == {int(name[1:])}
    other = assemble(examples(owner=owner), **{**OPTIONS, "clients": 5, "seed": 1})
    assert data.names != other.names
    with pytest.raises(
        RequestError, match="between 1 and 20 .this data set has 20 clients., got 21"
    ):
        assemble(examples(owner=owner), **{**OPTIONS, "clients": 21})


def test_official_test_examples_follow_the_training_shares():
    held_out = np.repeat([False, True], [160, 40])
    e = examples(held_out=held_out)
    data = assemble(e, **{**OPTIONS, "partition": iid, "clients": 4, "local_test": "official"})
    everything = []
    for k in range(4):
        train, test = owned_by(data, k)
        assert not held_out[train].any()
        assert held_out[test].all()
        everything += test
        for c in range(4):
            total, here = ((e.y[r] == c).sum() for r in (np.flatnonzero(~held_out), train))
            want = here / total * (e.y[held_out] == c).sum()
            assert abs((e.y[test] == c).sum() - want) <= 1
    assert sorted(everything) == np.flatnonzero(held_out).tolist()


def test_a_central_test_set_is_every_client_s():
    held_out = np.repeat([False, True], [160, 40])
    options = {**OPTIONS, "partition": iid, "clients": 4, "local_test": "central"}
    data = assemble(examples(held_out=held_out), **options)
    assert all(owned_by(data, k)[1] == list(range(160, 200)) for k in range(4))
    assert sorted(sum((owned_by(data, k)[0] for k in range(4)), [])) == list(range(160))
    assert label_counts(data).sum() == 160
    assert (
        facts(data)["examples"]
        == "200 (160 to train on, 40 to test on, the same for all clients); 200 in the source"
    )


def test_a_central_test_set_of_given_owners_is_the_union_of_theirs():
    owner = np.arange(200) % 20
    split, central = (
        assemble(examples(owner=owner), **{**OPTIONS, "clients": 5, "local_test": t})
        for t in ("split", "central")
    )
    union = sorted(sum((owned_by(split, k)[1] for k in range(5)), []))
    assert len(union) == 10
    assert all(owned_by(central, k) == [owned_by(split, k)[0], union] for k in range(5))


def test_other_clients_as_a_test_set():
    """The clients train on all they have; the test examples are all of clients that do not train."""
    owner = np.arange(200) % 20
    for apart in (None, np.arange(200) % 3 == 0):
        e = examples(owner=owner, held_out=apart)
        data = assemble(e, **{**OPTIONS, "clients": 5, "local_test": "others", "test_clients": 3})
        train = [owned_by(data, k)[0] for k in range(5)]
        assert [len(rows) for rows in train] == [10] * 5
        assert [data.names[k] for k in range(5)] == [e.names[owner[rows[0]]] for rows in train]
        test = owned_by(data, 0)[1]
        assert all(owned_by(data, k)[1] == test for k in range(5))
        assert len(data.test.index) == len(test) == 30  # stored once
        assert len(set(owner[test])) == 3
        assert not set(owner[test]) & set(owner[sum(train, [])])
        assert data.central
    for options, message in [
        (
            {"clients": 18, "local_test": "others", "test_clients": 3},
            "between 1 and 17 .this data set has 20 clients, of which data.test_clients takes 3",
        ),
        (
            {"local_test": "others", "test_clients": 20},
            "between 1 and 0 .* of which data.test_clients takes 20",
        ),
        ({"local_test": "others"}, "and the other way round"),
        ({"test_clients": 3}, "and the other way round"),
        (
            {"partition": iid, "clients": 4, "local_test": "others", "test_clients": 3},
            "a data set that assigns examples to clients itself",
        ),
    ]:
        with pytest.raises(RequestError, match=message):
            assemble(
                examples() if "partition" in options else examples(owner=owner),
                **{**OPTIONS, **options},
            )


def test_local_test_auto_and_what_does_not_apply():
    owner, held_out = np.arange(200) % 20, np.arange(200) % 4 == 0
    own = assemble(examples(owner=owner, held_out=held_out), **{**OPTIONS, "local_test": "auto"})
    assert own.test.counts.sum() == 50
    with pytest.raises(RequestError, match="data.local_test=split is not available"):
        assemble(examples(owner=owner, held_out=held_out), **OPTIONS)
    options = {**OPTIONS, "partition": iid, "clients": 4}
    for one, other in zip(
        *(
            assemble(examples(), **{**options, "local_test": t}).test.split()
            for t in ("auto", "split")
        ),
        strict=True,
    ):
        assert np.array_equal(one, other)


def test_what_nobody_has_is_counted():
    held_out = np.repeat([False, True], [160, 40])
    options = {
        **OPTIONS,
        "partition": lambda y, clients, rng: [np.arange(150), np.arange(150, 157)],
        "clients": 2,
    }
    said = "left out: 3 by the partition, 40 of the test examples set apart"
    assert assemble(examples(held_out=held_out), **options).sources == (said,)
    wrong = assemble(
        replace(examples(held_out=held_out), sources=("wrong", "note"), unofficial=("wrong",)),
        **options,
    )
    assert (wrong.sources, wrong.unofficial) == (("wrong", "note", said), ("wrong",))
    assert assemble(examples(), **{**OPTIONS, "partition": iid, "clients": 4}).sources == ()
    with pytest.raises(RequestError, match="official needs a data set with test examples"):
        assemble(examples(owner=np.arange(200) % 20), **{**OPTIONS, "local_test": "official"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "not divided among clients; type data.partition=iid data.clients=10"),
        (
            {"partition": iid, "clients": 4, "local_test": "official"},
            "official needs a data set with test examples",
        ),
        (
            {"partition": iid, "clients": 4, "local_test": "central"},
            "central needs a data set with test examples",
        ),
        (
            {"partition": iid, "clients": 200, "split": 0.5},
            "no client has a training example with data.split=0.5",
        ),
    ],
)
def test_assemble_refuses(change, message):
    with pytest.raises(RequestError, match=message):
        assemble(examples(), **{**OPTIONS, **change})
