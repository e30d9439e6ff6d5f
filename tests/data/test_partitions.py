"""The partition rules: what all of them keep, cases worked by hand, and every refusal."""

import inspect
from functools import partial
from itertools import accumulate

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import ROOT

from fedbench.config.targets import Component, call
from fedbench.core.errors import RequestError
from fedbench.data.assemble import assemble
from fedbench.data.examples import Examples
from fedbench.data.partitions.basic import cut, evenly, lognormal_sizes, power_law_sizes, sizes_of
from fedbench.data.partitions.dirichlet import (
    _balanced,
    dirichlet,
    dirichlet_mixture,
    dirichlet_sample,
)
from fedbench.data.partitions.label import (
    bernoulli_dirichlet,
    consecutive_classes,
    contiguous,
    half_classes,
    k_classes,
    one_class,
    shards,
    similarity,
    stratified,
)

RULES = {
    "dirichlet": (dirichlet, {"alpha": 1.0, "min_size": 1}),
    "dirichlet, balanced": (dirichlet, {"alpha": 1.0, "balance": True, "min_size": 2}),
    "dirichlet_mixture": (dirichlet_mixture, {"alpha": 0.3, "min_size": 3}),
    "dirichlet_mixture, sizes": (
        dirichlet_mixture,
        {"prior": "uniform", "size_sigma": 1.0, "min_size": 1},
    ),
    "shards": (shards, {}),
    "k_classes": (k_classes, {"classes_per_client": 2}),
    "similarity": (similarity, {"similarity": 0.5}),
    "stratified": (stratified, {}),
    "contiguous": (contiguous, {}),
    "half_classes": (half_classes, {}),
    "one_class": (one_class, {}),
    "bernoulli_dirichlet": (bernoulli_dirichlet, {"p": 0.4, "alpha": 2.0}),
    "lognormal_sizes": (lognormal_sizes, {"sigma": 1.0, "min_size": 2}),
    "power_law_sizes": (power_law_sizes, {"min_size": 1}),
}
LEAST = {"min_size": 1, "dirichlet, balanced": 2, "dirichlet_mixture": 3, "lognormal_sizes": 2}
# sizes that differ by one at most
EVEN = ("dirichlet_mixture", "shards", "similarity", "stratified", "contiguous")
rules = pytest.mark.parametrize("name", RULES)
cifar = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 5000))


@st.composite
def labels(draw):
    """2 to 5 classes of 20 to 60 examples in any order; the labels need not be consecutive."""
    sizes = draw(st.lists(st.integers(20, 60), min_size=2, max_size=5))
    names = draw(st.permutations(range(9)))[: len(sizes)]
    return np.random.default_rng(draw(st.integers(0, 9))).permutation(np.repeat(names, sizes))


def made(name, y, clients, seed=0, **options):
    rule, defaults = RULES[name]
    return rule(y, clients, np.random.default_rng(seed), **{**defaults, **options})


def table(y, owned):
    """[classes, N] how many examples of each label that occurs a client has."""
    found = np.unique(y)
    return np.array([[(y[o] == c).sum() for o in owned] for c in found])


def lists(owned):
    return [sorted(o.tolist()) for o in owned]


@rules
@settings(deadline=None, max_examples=30)
@given(y=labels(), clients=st.integers(5, 9), seed=st.integers(0, 99))
def test_every_example_has_one_owner_and_every_client_has_some(name, y, clients, seed):
    before = y.copy()
    owned = made(name, y, clients, seed)
    assert len(owned) == clients
    assert sorted(np.concatenate(owned).tolist()) == list(range(len(y)))
    sizes = [len(o) for o in owned]
    assert min(sizes) >= LEAST.get(name, 1)
    if name in EVEN:
        assert max(sizes) - min(sizes) <= (2 if name == "shards" else 1)
    assert np.array_equal(y, before)
    assert lists(made(name, y, clients, seed)) == lists(owned)


@rules
def test_another_seed_is_another_partition(name):
    y = cifar[:600]
    same = lists(made(name, y, 12, 0)) == lists(made(name, y, 12, 1))
    assert same == (name == "contiguous")


@rules
def test_options_are_those_of_the_config_and_have_its_defaults(name):
    rule, options = RULES[name]
    text = (ROOT / "conf" / "data" / "partition" / f"{rule.__name__}.yaml").read_text()
    assert text.startswith("# ")
    section = yaml.safe_load(text)
    assert section.pop("_target_") == f"{rule.__module__}.{rule.__name__}"
    parameters = inspect.signature(rule).parameters.values()
    assert section == {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert set(options) <= set(section)


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_two_shards_for_each_of_a_hundred_clients(name):
    tree = yaml.safe_load((ROOT / "conf" / "data" / f"{name}_shards2.yaml").read_text())
    section = yaml.safe_load(
        (
            ROOT / "conf" / "data" / "partition" / f"{tree['defaults'][0]['partition']}.yaml"
        ).read_text()
    )
    y = cifar if name == "cifar10" else np.repeat(np.arange(10), 6000)
    given = {"y": y, "clients": tree["clients"], "rng": np.random.default_rng(0)}
    owned = call(Component.of("data.partition", section), "data.partition", **given)
    assert {len(o) for o in owned} == {len(y) // 100}
    assert {len(np.unique(y[o])) for o in owned} == {1, 2}
    assert tree["local_test"] == "official"


# Dirichlet shares per class


@settings(deadline=None, max_examples=40)
@given(
    y=labels(),
    clients=st.integers(1, 6),
    balance=st.booleans(),
    alpha=st.sampled_from([0.2, 1.0, 30.0]),
)
def test_dirichlet_takes_the_first_draw_that_will_do(y, clients, balance, alpha):
    """One draw after the other, class by class, in plain loops."""
    owned = dirichlet(
        y, clients, np.random.default_rng(3), alpha=alpha, balance=balance, min_size=2
    )
    rng, classes = np.random.default_rng(3), np.unique(y)
    counts = [[0] * clients]
    while min(map(sum, zip(*counts, strict=True))) < 2:
        counts = []
        for c, q in zip(classes, rng.dirichlet([alpha] * clients, len(classes)), strict=True):
            if balance:
                held = [sum(row[k] for row in counts) for k in range(clients)]
                q = np.array([q[k] if held[k] < len(y) / clients else 0 for k in range(clients)])
                q = q / q.sum()
            # rounded as cumsum rounds: sum() of floats is exact from Python 3.12 on
            upto = list(accumulate(q))
            edges = [int(u / upto[-1] * (y == c).sum()) for u in upto]
            counts.append([b - a for a, b in zip([0, *edges], edges, strict=False)])
    assert table(y, owned).tolist() == counts


def test_cut_at_the_floor_of_the_cumulated_shares():
    """11 examples at .2, .5, 1: floors of 2.2, 5.5, 11, so 2, 3 and 6."""
    assert cut(np.array([0.2, 0.3, 0.5]), 11).tolist() == [2, 3, 6]
    assert cut(np.array([[0.0, 2.0], [1.0, 0.0]]), np.array([3, 4])).tolist() == [[0, 3], [4, 0]]


def test_balancing_leaves_out_who_is_full():
    """Two classes of 10, two clients: shares .8 and .2 fill the first (8 < 10 is not full), then .25 and .75.

    Of three classes of 10 with N = 2 a client is full at 15: 10, 9 (19 in all) and then nothing.
    """
    q = np.array([[[0.8, 0.2], [0.25, 0.75]]])
    rng = np.random.default_rng(0)
    assert _balanced(q, np.array([10, 10]), rng).tolist() == [[[8, 2], [2, 8]]]
    q = np.array([[[1.0, 0.0], [0.9, 0.1], [0.5, 0.5]]])
    assert _balanced(q, np.array([10, 10, 10]), rng).tolist() == [[[10, 0], [9, 1], [0, 10]]]


def test_balancing_gives_all_to_one_where_the_shares_of_the_others_vanish():
    """The limit of small alpha: the first client is full and has all of the second class; one other gets it."""
    q = np.tile([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], (40, 1, 1))
    counts = _balanced(q, np.array([4, 4, 4]), np.random.default_rng(0))
    assert (counts.sum(1) == 4).all()
    assert len(np.unique(counts, axis=0)) == 2


@pytest.mark.parametrize(("clients", "alpha", "most"), [(100, 0.05, 6), (500, 1e-300, 0)])
def test_a_hopeless_dirichlet_request_ends(clients, alpha, most):
    message = rf"no draw of data.partition.alpha=.* in \d+ tries; the smallest client had at most {most}; raise "
    with pytest.raises(RequestError, match=message):
        dirichlet(cifar, clients, np.random.default_rng(0), alpha=alpha, balance=True)


# Dirichlet mixture per client


def test_mixture_draws_from_what_is_left():
    """One client has everything; with huge alpha every client has the classes as the data has them."""
    y = np.repeat([0, 1, 2], [600, 300, 100])
    one = dirichlet_mixture(y, 1, np.random.default_rng(0))
    assert lists(one) == [list(range(1000))]
    counts = table(y, dirichlet_mixture(y, 4, np.random.default_rng(0), alpha=1e9))
    # multinomial(250), three standard deviations
    assert np.abs(counts[:, 0] / 250 - [0.6, 0.3, 0.1]).max() < 0.1
    first = table(
        y, dirichlet_mixture(y, 10, np.random.default_rng(0), alpha=1e9, prior="uniform")
    )[:, 0]
    assert np.abs(first / 100 - 1 / 3).max() < 0.15


def test_mixture_with_tiny_alpha_has_one_class_until_it_is_used_up():
    y = np.repeat(np.arange(10), 100)
    counts = table(y, dirichlet_mixture(y, 50, np.random.default_rng(0), alpha=1e-9))
    assert (counts.sum(0) == 20).all()
    assert (counts.max(0) == 20).sum() >= 25  # the first ones at least have one class
    assert (counts.sum(1) == 100).all()


def test_mixture_mean_and_spread_are_those_of_the_dirichlet():
    """Var of q_kc is p (1 - p) / (α + 1); of a share of n draws p (1 - p) / n more, times α / (α + 1)."""
    y, alpha, n = np.repeat([0, 1], 200_000), 4.0, 40
    counts = (
        table(y, dirichlet_mixture(y, 10_000, np.random.default_rng(0), alpha=alpha))[0, :2000] / n
    )
    assert abs(counts.mean() - 0.5) < 0.02
    assert counts.var() == pytest.approx(0.25 / (alpha + 1) * (1 + alpha / n), rel=0.1)


def test_a_sample_belongs_to_one_client_each_and_differs_by_seed():
    """4000 of 50000 examples are drawn; each class has Hypergeometric(50000, 5000, 4000), 400 ± 18 of them."""
    first, second = (
        dirichlet_sample(cifar, 20, np.random.default_rng(s), examples=4000) for s in (0, 1)
    )
    drawn = np.concatenate(first)
    assert len(drawn) == len(set(drawn.tolist())) == 4000
    assert min(map(len, first)) >= 10
    assert np.abs(np.bincount(cifar[drawn]) - 400).max() < 90
    # 320 ± 17 by chance
    assert len(set(drawn.tolist()) & set(np.concatenate(second).tolist())) < 600
    skew = np.mean([np.bincount(cifar[o]).max() / len(o) for o in first])
    assert skew > 0.4  # an even client has 0.1


def test_a_sample_of_too_many_examples_is_refused():
    with pytest.raises(
        RequestError,
        match="examples must be at most 10, the number of examples of the data, got 11",
    ):
        dirichlet_sample(np.arange(10) % 2, 2, np.random.default_rng(0), examples=11)


# rules by label


def test_shards_by_hand():
    """Labels 0 at 1 3 5, 1 at 0 2, 2 at 4 6 7: shards of two in stored order, dealt once each."""
    y = np.array([1, 0, 1, 0, 2, 0, 2, 2])
    pieces = {(1, 3), (0, 5), (2, 4), (6, 7)}
    for seed in range(5):
        owned = lists(shards(y, 2, np.random.default_rng(seed)))
        assert all(sum(set(p) <= set(o) for p in pieces) == 2 for o in owned)


@settings(deadline=None)
@given(y=labels(), clients=st.integers(3, 9), each=st.integers(1, 4), seed=st.integers(0, 9))
def test_k_classes(y, clients, each, seed):
    """Each client has the given number of classes, and the clients of a class have equal shares of it."""
    found = len(np.unique(y))
    if each > found or clients * each < found:
        with pytest.raises(RequestError):
            k_classes(y, clients, np.random.default_rng(seed), classes_per_client=each)
        return
    counts = table(y, k_classes(y, clients, np.random.default_rng(seed), classes_per_client=each))
    assert ((counts > 0).sum(0) == each).all()
    for row in counts:
        assert np.ptp(row[row > 0]) <= 1


def test_k_classes_are_drawn_uniformly():
    """20000 pairs of five classes: each of the ten pairs has a tenth, to within four standard deviations."""
    y = np.tile(np.arange(5), 12000)
    counts = table(y, k_classes(y, 20000, np.random.default_rng(0), classes_per_client=2))
    pairs = np.unique((counts > 0).T, axis=0, return_counts=True)[1]
    assert len(pairs) == 10
    assert np.abs(pairs / 20000 - 0.1).max() < 4 * np.sqrt(0.09 / 20000)


def test_consecutive_classes_by_hand():
    """With sigma 0, every client has int((e^mu + more) / 3) examples of each of its classes while there are enough."""
    y = np.repeat(np.arange(4), 7)
    options = {"mu": np.log(6.5), "sigma": 0, "more": 3}  # 3 of each
    owned = consecutive_classes(y, 3, np.random.default_rng(0), **options)
    # client 0 takes of 0, 1, 2; client 1 of 1, 2, 3; client 2 of 3 and 0, for 2 has one left
    assert table(y, owned).tolist() == [[3, 0, 3], [3, 3, 0], [3, 3, 0], [0, 3, 3]]
    # 3, 0 and 1 have one left
    with pytest.raises(RequestError, match=r"classes of client 3 .* lower data.clients"):
        consecutive_classes(y, 4, np.random.default_rng(0), **options)


def test_consecutive_classes_has_the_sizes_of_the_script():
    """Of each class int((lognormal(4, 1) + 5) / 3), at least 2; FedFa's Table 1 has 18345 examples of 200 clients."""
    y = np.repeat(np.arange(10), 5000)
    counts = table(y, consecutive_classes(y, 200, np.random.default_rng(0)))
    assert all(
        set(np.flatnonzero(counts[:, i])) == {i % 10, (i + 1) % 10, (i + 2) % 10}
        for i in range(200)
    )
    each = counts.max(0)
    assert (counts.sum(0) == 3 * each).all()
    rng = np.random.default_rng(0)
    for _ in range(10):
        rng.permutation(5000)
    assert (
        each.tolist()
        == np.maximum((np.exp(4 + rng.standard_normal(200)) + 5) / 3, 2).astype(int).tolist()
    )
    assert 14000 < counts.sum() < 24000


def published(each, classes, clients_classes):
    """The loop of FedProx's script over clients, on image numbers 0, 1, ... of every class."""
    start, held = np.zeros(classes, dtype=int), []
    for user, n in enumerate(each):
        held.append([])
        for j in range(clients_classes):
            c = (user + j) % classes
            if start[c] + n < 4000:
                start[c] = 0
            held[-1] += [(c, image) for image in range(4000)[start[c] : start[c] + n]]
            start[c] += n
    return held


@pytest.mark.parametrize("mu", [4.0, 6.5])
def test_consecutive_classes_as_published_shares_images_as_the_script_does(mu):
    """At the larger sizes some clients reach beyond the 4000 images of a class, and some go on after another."""
    y = np.repeat(np.arange(10), 5000)
    owned = consecutive_classes(y, 200, np.random.default_rng(0), mu=mu, as_published=True)
    rng = np.random.default_rng(0)
    images = np.concatenate([5000 * c + rng.permutation(5000)[:4000] for c in range(10)])
    each = np.maximum(
        (np.exp(np.minimum(mu + rng.standard_normal(200), np.log(len(y)))) + 5) / 3, 2
    ).astype(int)
    want = published(each.tolist(), 10, 3)
    assert [o.tolist() for o in owned] == [
        [images[4000 * c + k] for c, k in client] for client in want
    ]
    # every client begins at the first image, so the largest client of a class has all that are used
    # of it
    if mu == 4:
        assert len(np.unique(np.concatenate(owned))) == sum(
            max(each[[i for i in range(200) if (c - i) % 10 < 3]]) for c in range(10)
        )


def test_as_published_is_not_an_option_that_changes_the_draws():
    """The same classes and sizes of clients; and, as before it existed, no image twice without it."""
    y = np.repeat(np.arange(10), 5000)
    clean, shared = (
        consecutive_classes(y, 200, np.random.default_rng(3), as_published=on)
        for on in (False, True)
    )
    assert np.array_equal(table(y, clean), table(y, shared))
    assert len(np.unique(np.concatenate(clean))) == sum(map(len, clean))


def test_shared_examples_are_counted_and_have_one_label():
    """4 clients of 6 examples of 2 classes, the same first 3 of each class; half of each client's are for testing."""
    x, y = np.zeros((20, 1)), np.repeat([0, 1], 10)
    # int(6 / 2) of each
    rule = partial(consecutive_classes, classes_per_client=2, mu=0, sigma=0, as_published=True)
    data = assemble(
        Examples(x, y, 2),
        partition=rule,
        clients=4,
        split=0.5,
        local_test="split",
        seed=0,
        test_clients=None,
    )
    assert data.shares_examples
    train, test = data.train.index.numpy(), data.test.index.numpy()
    assert len(np.union1d(train, test)) == 6
    assert (len(train), len(test)) == (12, 12)
    assert data.sources[-2:] == (
        "left out: 14 by the partition",
        f"shared by clients: 12 training examples, {len(set(train))} of them distinct; "
        f"{sum(t in train for t in test)} test examples of a client are training examples of some client",
    )


def test_similarity_by_hand():
    """12 examples, 3 classes of 4, 2 clients: at 0 blocks of the sorted labels, at .5 six at random, three for each."""
    y = np.array([2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1])
    rng = np.random.default_rng(0)
    assert table(y, similarity(y, 2, rng, similarity=0)).tolist() == [[4, 0], [2, 2], [0, 4]]
    assert [len(o) for o in similarity(y, 5, rng, similarity=1)] == [3, 3, 2, 2, 2]
    first, second = similarity(y, 2, rng, similarity=0.5)
    assert (len(first), len(second)) == (6, 6)
    assert y[first[3:]].max() <= y[second[3:]].min()  # the blocks come after the random part


@settings(deadline=None)
@given(y=labels(), clients=st.integers(1, 25))
def test_stratified_amounts_differ_by_one_at_most(y, clients):
    owned = stratified(y, clients, np.random.default_rng(0))
    assert np.ptp(table(y, owned), axis=1).max() <= 1
    assert np.ptp([len(o) for o in owned]) <= 1


def test_contiguous_by_hand():
    assert lists(contiguous(np.zeros(7), 3, np.random.default_rng(0))) == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]


@pytest.mark.parametrize(("clients", "classes"), [(20, [0, 1, 2, 5, 9]), (5, (3,)), (4, None)])
def test_half_classes(clients, classes):
    """20 clients: 25000 images for 10 on either side, 500 of each class of theirs for each."""
    counts = table(cifar, half_classes(cifar, clients, np.random.default_rng(0), classes=classes))
    first = [0, 1, 2, 3, 4] if classes is None else list(classes)
    others = [c for c in range(10) if c not in first]
    half = clients // 2
    assert (counts[first, :half] == 5000 // half).all()
    assert not counts[first, half:].any()
    assert not counts[others, :half].any()
    assert np.ptp(counts[others, half:]) <= 1


def test_one_class_by_hand():
    """Labels 0, 2, 6 and three clients: a client is a class, in this order; five share 0 and 2 between two."""
    y = np.array([6, 0, 2, 0, 6, 2, 0, 6])
    assert lists(one_class(y, 3, np.random.default_rng(0))) == [[1, 3, 6], [2, 5], [0, 4, 7]]
    assert table(y, one_class(y, 5, np.random.default_rng(0))).tolist() == [
        [2, 0, 0, 1, 0],
        [0, 1, 0, 0, 1],
        [0, 0, 3, 0, 0],
    ]


def test_bernoulli_dirichlet_holds_classes_with_probability_p():
    """Given one class at least: p / (1 - (1 - p)^K) on average; no class is preferred."""
    p, clients = 0.3, 2000
    y = np.tile(np.arange(4), 200_000)
    held = table(y, bernoulli_dirichlet(y, clients, np.random.default_rng(0), p=p, alpha=100.0)) > 0
    expected = p / (1 - (1 - p) ** 4)
    assert np.abs(held.mean(1) - expected).max() < 4 * np.sqrt(expected * (1 - expected) / clients)


def test_bernoulli_dirichlet_at_its_limits():
    """With p = 1 and large alpha all share all evenly; with tiny p everybody has one class, and no class is lost."""
    counts = table(
        cifar, bernoulli_dirichlet(cifar, 10, np.random.default_rng(0), p=1.0, alpha=1e9)
    )
    assert np.abs(counts - 500).max() < 5 * np.sqrt(5000 * 0.1 * 0.9)
    counts = table(cifar, bernoulli_dirichlet(cifar, 200, np.random.default_rng(0), p=1e-12))
    assert ((counts > 0).sum(0) == 1).all()
    counts = table(cifar, bernoulli_dirichlet(cifar, 2, np.random.default_rng(0), p=1e-12))
    # ten classes, two clients with one each by chance: the others are given away
    assert (counts.sum(1) == 5000).all()


# quantities


def test_sizes_by_hand():
    """100 = 3 · 10 + 70, shared 1 : 2 : 4 as 10, 20, 40."""
    assert sizes_of(np.array([1.0, 2.0, 4.0]), 100, 10).tolist() == [20, 30, 50]
    assert evenly(11, 4).tolist() == [3, 3, 3, 2]


def test_power_law():
    """Harmonic shares of 1100 beyond one for each of four: 1, 1/2, 1/3, 1/4 of 528."""
    sizes = sorted(
        (len(o) for o in power_law_sizes(np.zeros(1104), 4, np.random.default_rng(0), min_size=1)),
        reverse=True,
    )
    assert sizes == [529, 265, 177, 133]
    equal = power_law_sizes(np.zeros(100), 4, np.random.default_rng(0), exponent=0)
    assert [len(o) for o in equal] == [25] * 4
    steep = power_law_sizes(np.zeros(100), 4, np.random.default_rng(0), exponent=1e6)
    assert sorted(len(o) for o in steep) == [10, 10, 10, 70]


def test_lognormal():
    """The logarithms of what is beyond the least size spread by sigma."""
    y = np.zeros(4_000_000)
    sizes = np.array(
        [len(o) for o in lognormal_sizes(y, 2000, np.random.default_rng(0), sigma=0.5)]
    )
    assert np.log(sizes - 10).std() == pytest.approx(0.5, rel=0.05)
    equal = lognormal_sizes(np.zeros(100), 4, np.random.default_rng(0), sigma=0)
    assert [len(o) for o in equal] == [25] * 4
    assert (
        min(len(o) for o in lognormal_sizes(np.zeros(100), 4, np.random.default_rng(0), sigma=1e9))
        == 10
    )


def test_quantity_rules_do_not_look_at_labels():
    for rule in (lognormal_sizes, power_law_sizes):
        a, b = (rule(y, 7, np.random.default_rng(0)) for y in (np.zeros(500), np.arange(500)))
        assert lists(a) == lists(b)


# refusals

TEN = np.repeat(np.arange(5), 2)


@pytest.mark.parametrize(
    ("rule", "clients", "options", "message"),
    [
        (dirichlet, 4, {}, "data.clients must be at most 1, as there are 10 examples, got 4 with "
         "data.partition.min_size=10, which needs 40 examples"),
        (dirichlet, 11, {"min_size": 2}, "at most 5, as there are 10 examples, got 11 with data.partition.min_size=2"),
        (dirichlet, 11, {"min_size": 1}, "data.clients must be at most 10, as there are 10 examples, got 11"),
        (dirichlet_mixture, 4, {"min_size": 3}, "as there are 10 examples, got 4 with data.partition.min_size=3"),
        (shards, 4, {"shards_per_client": 3}, "at most 3, as there are 10 examples, got 4 with "
         "data.partition.shards_per_client=3"),
        (k_classes, 4, {"classes_per_client": 6}, "between 2, so that every class has one of data.clients=4, and 5, "
         "the number of classes, got 6"),
        (k_classes, 2, {"classes_per_client": 2}, "data.partition.classes_per_client must be between 3, so that"),
        (k_classes, 3, {"classes_per_client": 5}, "class 0 has 2 examples, too few for the 3 clients that hold it; "
         "lower data.clients"),
        (consecutive_classes, 5, {"least": 9}, "the 3 classes of client 0 have fewer than the 9 examples "
         "that it needs of each; lower data.clients, or mu"),
        (consecutive_classes, 5, {"classes_per_client": 6}, "must be at most the number of classes, 5, got 6"),
        (consecutive_classes, 5, {"mu": 0, "sigma": 0, "more": 5}, "the 3 classes of client 3 have "
         "fewer than the 2 examples that it needs of each; lower data.clients"),
        (similarity, 11, {}, "data.clients must be at most 10, as there are 10 examples, got 11"),
        (half_classes, 1, {}, "data.clients must be >= 2, got 1; use data/partition=stratified for a"),
        (half_classes, 10, {}, "5 clients cannot share 4 examples; lower data.clients"),
        (half_classes, 4, {"classes": [0, 7]}, "data.partition.classes must be a list of some, but not all, of the "
         "labels 0 to 4, got [0, 7]; null is the lower half"),
        (half_classes, 4, {"classes": [0, 1, 2, 3, 4]}, "but not all, of the labels 0 to 4"),
        (one_class, 4, {}, "data.clients must be at least the number of classes, 5, for one class per client, got 4; "
         "or use data/partition=k_classes"),
        (one_class, 11, {}, "class 0 has 2 examples, too few for the 3 clients that hold it; lower data.clients"),
        (bernoulli_dirichlet, 4, {"min_size": 3}, "as there are 10 examples, got 4 with data.partition.min_size=3"),
        (lognormal_sizes, 4, {}, "at most 1, as there are 10 examples, got 4 with data.partition.min_size=10"),
        (power_law_sizes, 4, {}, "at most 1, as there are 10 examples, got 4 with data.partition.min_size=10"),
    ],
)  # fmt: skip
def test_refusals_say_what_would_do(rule, clients, options, message):
    with pytest.raises(RequestError) as error:
        rule(TEN, clients, np.random.default_rng(0), **options)
    assert message in str(error.value)
