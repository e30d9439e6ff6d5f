"""The partition rules: what all of them keep, cases worked by hand, and every refusal."""

import inspect
import json
import re
from itertools import accumulate

import numpy as np
import pytest
import yaml
from data_files import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from tools import ROOT, rejected

from fedbench.data.partitions.basic import (
    cut,
    dirichlet_min_share,
    evenly,
    iid,
    lognormal_sizes,
    power_law_sizes,
    sizes_of,
    two_classes_power_law,
)
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

# rules that use every example once, their options, and the largest difference of clients' sizes
TABLE = """
iid                  {}                                                     1
dirichlet            {"alpha": 1, "min_size": 1}                            inf
dirichlet            {"alpha": 1, "balance": true, "min_size": 2}           inf
dirichlet_mixture    {"alpha": 0.3, "min_size": 3}                          1
dirichlet_mixture    {"prior": "uniform", "size_sigma": 1, "min_size": 1}   inf
shards               {}                                                     2
k_classes            {"classes_per_client": 2}                              inf
similarity           {"similarity": 0.5}                                    1
stratified           {}                                                     1
contiguous           {}                                                     1
half_classes         {}                                                     inf
one_class            {}                                                     inf
bernoulli_dirichlet  {"p": 0.4, "alpha": 2}                                 inf
lognormal_sizes      {"sigma": 1, "min_size": 2}                            inf
power_law_sizes      {"min_size": 1}                                        inf
"""
RULES = [(globals()[name], json.loads(options), float(n)) for name, options, n in cases(TABLE)]
rules = pytest.mark.parametrize(
    "case",
    RULES,
    ids=lambda case: case[0].__name__,
)
cifar = default_rng(5).permutation(np.repeat(np.arange(10), 5000))


@st.composite
def labels(draw):
    """2 to 5 classes of 20 to 60 examples in any order; the labels need not be consecutive."""
    sizes = draw(st.lists(st.integers(20, 60), min_size=2, max_size=5))
    names = draw(st.permutations(range(9)))[: len(sizes)]
    return default_rng(draw(st.integers(0, 9))).permutation(np.repeat(names, sizes))


def dealt(rule, y, clients, seed=0, **options):
    return rule(y, clients, default_rng(seed), **options)


def table(y, owned):
    """[classes, N] how many examples of each label that occurs a client has."""
    return np.array([[(y[rows] == label).sum() for rows in owned] for label in np.unique(y)])


def counted(rule, y, clients, **options):
    return table(y, dealt(rule, y, clients, **options))


def lists(owned):
    return [sorted(rows.tolist()) for rows in owned]


def sizes(owned):
    return [len(rows) for rows in owned]


@rules
@settings(deadline=None, max_examples=30)
@given(
    y=labels(),
    clients=st.integers(5, 9),
    seed=st.integers(0, 99),
)
def test_every_example_has_one_owner_and_every_client_has_some(case, y, clients, seed):
    rule, options, spread = case
    before = y.copy()
    owned = dealt(rule, y, clients, seed, **options)
    assert len(owned) == clients
    assert sorted(np.concatenate(owned).tolist()) == list(range(len(y)))
    assert min(sizes(owned)) >= options.get("min_size", 1)
    assert np.ptp(sizes(owned)) <= spread
    assert np.array_equal(y, before)
    assert lists(dealt(rule, y, clients, seed, **options)) == lists(owned)


@rules
def test_another_seed_is_another_partition(case):
    rule, options, _ = case
    first, second = (lists(dealt(rule, cifar[:600], 12, seed, **options)) for seed in (0, 1))
    assert (first == second) == (rule is contiguous)


@pytest.mark.parametrize(
    "rule",
    {rule.__name__: rule for rule, _, _ in RULES}.values(),
)
def test_options_are_those_of_the_config_and_have_its_defaults(rule):
    section = yaml.safe_load((ROOT / f"conf/data/partition/{rule.__name__}.yaml").read_text())
    assert section.pop("_target_") == f"{rule.__module__}.{rule.__name__}"
    parameters = inspect.signature(rule).parameters.values()
    assert section == {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


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
    owned = dealt(
        dirichlet,
        y,
        clients,
        3,
        alpha=alpha,
        balance=balance,
        min_size=2,
    )
    rng = default_rng(3)
    classes = np.unique(y)
    counts = np.zeros((1, clients))
    while counts.sum(0).min() < 2:
        counts = np.zeros((len(classes), clients))
        for c, q in enumerate(rng.dirichlet([alpha] * clients, len(classes))):
            if balance:
                q = np.where(
                    counts.sum(0) < len(y) / clients,
                    q,
                    0,
                )
                q = q / q.sum()
            # rounded as cumsum rounds: sum() of floats is exact from Python 3.12 on
            upto = list(accumulate(q))
            size = (y == classes[c]).sum()
            edges = [int(u / upto[-1] * size) for u in upto]
            counts[c] = np.diff([0, *edges])
    assert np.array_equal(table(y, owned), counts)


def test_cut_at_the_floor_of_the_cumulated_shares():
    """11 examples at .2, .5, 1: floors of 2.2, 5.5, 11, so 2, 3 and 6."""
    assert cut(np.array([0.2, 0.3, 0.5]), 11).tolist() == [2, 3, 6]
    assert cut(np.array([[0.0, 2.0], [1.0, 0.0]]), np.array([3, 4])).tolist() == [[0, 3], [4, 0]]


def test_balancing_gives_all_to_one_where_the_shares_of_the_others_vanish():
    """The limit of small alpha: the first client is full and has all of the second class; one other
    gets it."""
    q = np.tile(
        [1.0, 0.0, 0.0],
        (40, 3, 1),
    )
    counts = _balanced(
        q,
        np.array([4, 4, 4]),
        default_rng(0),
    )
    assert (counts.sum(1) == 4).all()
    assert len(np.unique(counts, axis=0)) == 2


@pytest.mark.parametrize(
    ("clients", "alpha", "most"),
    [(100, 0.05, 6), (500, 1e-300, 0)],
)
def test_a_hopeless_dirichlet_request_ends(clients, alpha, most):
    message = rf"no draw of .*alpha=.* in \d+ tries; the smallest client had at most {most}; raise "
    with rejected(message):
        dealt(dirichlet, cifar, clients, alpha=alpha, balance=True)


@settings(deadline=None)
@given(
    labels(),
    st.integers(1, 8),
    st.sampled_from([0.3, 1.0, 10.0]),
    st.integers(0, 9),
)
def test_dirichlet_min_share_takes_the_first_draw_that_will_do(y, clients, alpha, seed):
    """The remainder of floors is dropped."""
    owned = dealt(dirichlet_min_share, y, clients, seed, alpha=alpha)
    rows = np.concatenate(owned)
    assert len(rows) == len(np.unique(rows))
    rng = default_rng(seed)
    totals = np.unique(y, return_counts=True)[1]
    counts = np.zeros((1, clients))
    while not counts.any(0).all():
        q = rng.dirichlet(
            np.full(clients, alpha),
            len(totals),
        )
        if (q.sum(0) >= 0.1 / clients).all():
            counts = np.floor(q * totals[:, None])
    assert np.array_equal(table(y, owned), counts)


def test_dirichlet_min_share_ends_with_a_reason_where_no_draw_can_do():
    y = np.zeros(50, dtype=int)
    with rejected("no draw of data.partition.alpha=0.01 .*; raise data.p"):
        dealt(dirichlet_min_share, y, 40, alpha=0.01)
    with rejected("data.partition.min_share=2/2 of a class"):
        dealt(dirichlet_min_share, y, 2, alpha=1, min_share=2)


# Dirichlet mixture per client


def test_mixture_with_huge_alpha_has_the_classes_of_its_prior():
    y = np.repeat(
        [0, 1, 2],
        [600, 300, 100],
    )
    first = counted(dirichlet_mixture, y, 10, alpha=1e9, prior="uniform")[:, 0]
    # multinomial(100), three standard deviations
    assert first / 100 == pytest.approx(1 / 3, abs=0.15)


def test_mixture_with_tiny_alpha_has_one_class_until_it_is_used_up():
    y = np.repeat(np.arange(10), 100)
    counts = counted(dirichlet_mixture, y, 50, alpha=1e-9)
    assert (counts.sum(0) == 20).all()
    assert (counts.max(0) == 20).sum() >= 25  # the first ones at least have one class
    assert (counts.sum(1) == 100).all()


def test_mixture_mean_and_spread_are_those_of_the_dirichlet():
    """Var of q_kc is p (1 - p) / (α + 1); of a share of n draws p (1 - p) / n more, times
    α / (α + 1)."""
    y = np.repeat([0, 1], 200_000)
    alpha = 4.0
    n = 40
    shares = counted(dirichlet_mixture, y, 10_000, alpha=alpha)[0, :2000] / n
    assert abs(shares.mean() - 0.5) < 0.02
    assert shares.var() == pytest.approx(0.25 / (alpha + 1) * (1 + alpha / n), rel=0.1)


def test_a_sample_belongs_to_one_client_each_and_differs_by_seed():
    """4000 of 50000 examples are drawn; each class has Hypergeometric(50000, 5000, 4000), 400 ± 18
    of them."""
    owned = dealt(dirichlet_sample, cifar, 20, 0, examples=4000)
    drawn = np.concatenate(owned)
    assert len(drawn) == len(np.unique(drawn)) == 4000
    assert min(sizes(owned)) >= 10
    assert np.abs(np.bincount(cifar[drawn]) - 400).max() < 90
    other = np.concatenate(dealt(dirichlet_sample, cifar, 20, 1, examples=4000))
    assert len(np.intersect1d(drawn, other)) < 600  # 320 ± 17 by chance
    skew = [np.bincount(cifar[rows]).max() / len(rows) for rows in owned]
    assert np.mean(skew) > 0.4  # an even client has 0.1


# rules by label


def test_two_classes_power_law():
    """Each client has its two classes and at least five of each; unused examples stay unused."""
    y = np.repeat(np.arange(10), 700)
    owned = dealt(two_classes_power_law, y, 100)
    rows = np.concatenate(owned)
    assert len(rows) == len(np.unique(rows))
    counts = table(y, owned)
    for client in range(100):
        held = {client % 10, (client + 1) % 10}
        assert set(np.flatnonzero(counts[:, client] >= 5)) == held
        assert set(np.flatnonzero(counts[:, client])) == held
    assert counts.sum(0).max() > 5 * np.median(counts.sum(0))  # a power law
    # a draw of e^400 and more
    wild = dealt(two_classes_power_law, y, 100, sigma=400)
    assert min(sizes(wild)) >= 10


def test_two_classes_power_law_needs_the_least_of_every_holder():
    y = np.repeat(np.arange(10), 9)
    with rejected("class 0 has 9 examples.*lower data.clients or"):
        dealt(two_classes_power_law, y, 10)
    assert len(dealt(two_classes_power_law, y, 10, least=4)) == 10


def test_shards_by_hand():
    """Labels 0 at 1 3 5, 1 at 0 2, 2 at 4 6 7: shards of two in stored order, dealt once each."""
    y = np.array([1, 0, 1, 0, 2, 0, 2, 2])
    pieces = {(1, 3), (0, 5), (2, 4), (6, 7)}
    for seed in range(5):
        for rows in dealt(shards, y, 2, seed):
            assert sum(set(piece) <= set(rows) for piece in pieces) == 2


@settings(deadline=None)
@given(
    y=labels(),
    clients=st.integers(5, 9),
    each=st.integers(1, 2),
    seed=st.integers(0, 9),
)
def test_k_classes(y, clients, each, seed):
    """Each client has the given number of classes, and the clients of a class have equal shares of
    it."""
    counts = counted(k_classes, y, clients, seed=seed, classes_per_client=each)
    assert ((counts > 0).sum(0) == each).all()
    for row in counts:
        assert np.ptp(row[row > 0]) <= 1


def test_k_classes_are_drawn_uniformly():
    """20000 pairs of five classes: each of the ten pairs has a tenth, to within four standard
    deviations."""
    y = np.tile(np.arange(5), 12000)
    held = counted(k_classes, y, 20000, classes_per_client=2) > 0
    pairs = np.unique(held.T, axis=0, return_counts=True)[1]
    assert len(pairs) == 10
    assert np.abs(pairs / 20000 - 0.1).max() < 4 * np.sqrt(0.09 / 20000)


def test_k_classes_with_its_own():
    """Client i has class i modulo 5; each of the four others is drawn by a quarter, to within four
    standard deviations."""
    y = np.tile(np.arange(5), 12000)
    held = counted(k_classes, y, 20000, classes_per_client=2, own=True) > 0
    assert (held.sum(0) == 2).all()
    by_own = held.reshape(5, 4000, 5)  # [class, client // 5, own class]
    shares = by_own.mean(1)
    assert np.diag(shares).tolist() == [1] * 5
    others = shares[~np.eye(5, dtype=bool)]
    assert np.abs(others - 0.25).max() < 4 * np.sqrt(0.1875 / 4000)


def test_consecutive_classes_by_hand():
    """With sigma 0, every client has int((e^mu + more) / 3) examples of each of its classes while
    there are enough."""
    y = np.repeat(np.arange(4), 7)
    options = {
        "mu": np.log(6.5),
        "sigma": 0,
        "more": 3,
    }  # 3 of each
    # client 0 takes of 0, 1, 2; client 1 of 1, 2, 3; client 2 of 3 and 0, for 2 has one left
    counts = counted(consecutive_classes, y, 3, **options)
    assert counts.tolist() == [[3, 0, 3], [3, 3, 0], [3, 3, 0], [0, 3, 3]]
    # 3, 0 and 1 have one left
    with rejected("classes of client 3 .* lower data.clients"):
        dealt(consecutive_classes, y, 4, **options)


SORTED = np.repeat(np.arange(10), 5000)


def published(each, pools):
    """The loop of FedProx's script over clients."""
    start = np.zeros(10, dtype=int)
    held = []
    for client, size in enumerate(each):
        held.append([])
        for c in ((client + j) % 10 for j in range(3)):
            if start[c] + size < 4000:
                start[c] = 0
            held[-1] += pools[c][:4000][start[c] : start[c] + size].tolist()
            start[c] += size
    return held


@pytest.mark.parametrize("mu", [4.0, 6.5])
def test_consecutive_classes_as_published_shares_images_as_the_script_does(mu):
    """At the larger sizes some clients reach beyond the 4000 images of a class, and some go on
    after another."""
    owned = dealt(consecutive_classes, SORTED, 200, mu=mu, as_published=True)
    rng = default_rng(0)
    pools = [5000 * c + rng.permutation(5000) for c in range(10)]
    exponents = np.minimum(mu + rng.standard_normal(200), np.log(50_000))
    each = np.maximum((np.exp(exponents) + 5) / 3, 2).astype(int)
    assert [rows.tolist() for rows in owned] == published(each, pools)
    # every client begins at the first image, so the largest client of a class has all that are used
    # of it
    if mu == 4:
        clients = np.arange(200)
        largest = [each[(c - clients) % 10 < 3].max() for c in range(10)]
        assert len(np.unique(np.concatenate(owned))) == sum(largest)


def test_similarity_by_hand():
    """12 examples, 3 classes of 4, 2 clients: at 0 blocks of the sorted labels, at .5 six at
    random, three for each."""
    y = np.array([2, 0, 1] * 4)
    assert counted(similarity, y, 2, similarity=0).tolist() == [[4, 0], [2, 2], [0, 4]]
    first, second = dealt(similarity, y, 2, similarity=0.5)
    assert len(first) == len(second) == 6
    assert y[first[3:]].max() <= y[second[3:]].min()  # the blocks come after the random part


@settings(deadline=None)
@given(
    y=labels(),
    clients=st.integers(1, 25),
)
def test_stratified_amounts_differ_by_one_at_most(y, clients):
    counts = counted(stratified, y, clients)
    assert np.ptp(counts, axis=1).max() <= 1


def test_contiguous_by_hand():
    assert lists(dealt(contiguous, np.zeros(7), 3)) == [[0, 1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("clients", "classes"),
    [(20, [0, 1, 2, 5, 9]), (5, (3,)), (4, None)],
)
def test_half_classes(clients, classes):
    """20 clients: 25000 images for 10 on either side, 500 of each class of theirs for each."""
    counts = counted(half_classes, cifar, clients, classes=classes)
    first = [0, 1, 2, 3, 4] if classes is None else list(classes)
    others = np.setdiff1d(np.arange(10), first)
    half = clients // 2
    assert (counts[first, :half] == 5000 // half).all()
    assert not counts[first, half:].any()
    assert not counts[others, :half].any()
    assert np.ptp(counts[others, half:]) <= 1


def test_one_class_by_hand():
    """Labels 0, 2, 6 and three clients: a client is a class, in this order; five share 0 and 2
    between two."""
    y = np.array([6, 0, 2, 0, 6, 2, 0, 6])
    assert lists(dealt(one_class, y, 3)) == [[1, 3, 6], [2, 5], [0, 4, 7]]
    counts = counted(one_class, y, 5)
    assert counts.tolist() == [[2, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 3, 0, 0]]


def test_bernoulli_dirichlet_holds_classes_with_probability_p():
    """Given one class at least: p / (1 - (1 - p)^K) on average; no class is preferred."""
    p = 0.3
    y = np.tile(np.arange(4), 200_000)
    held = counted(bernoulli_dirichlet, y, 2000, p=p, alpha=100.0) > 0
    expected = p / (1 - (1 - p) ** 4)
    deviation = np.sqrt(expected * (1 - expected) / 2000)
    assert np.abs(held.mean(1) - expected).max() < 4 * deviation


def test_bernoulli_dirichlet_with_p_1_and_large_alpha_shares_evenly():
    counts = counted(bernoulli_dirichlet, cifar, 10, p=1.0, alpha=1e9)
    assert np.abs(counts - 500).max() < 5 * np.sqrt(5000 * 0.1 * 0.9)


def test_bernoulli_dirichlet_with_tiny_p_gives_one_class_each_and_loses_none():
    counts = counted(bernoulli_dirichlet, cifar, 200, p=1e-12)
    assert ((counts > 0).sum(0) == 1).all()
    # ten classes, two clients with one each by chance: the others are given away
    assert (counted(bernoulli_dirichlet, cifar, 2, p=1e-12).sum(1) == 5000).all()


# quantities


def test_sizes_by_hand():
    """100 = 3 · 10 + 70, shared 1 : 2 : 4 as 10, 20, 40."""
    assert sizes_of(np.array([1.0, 2.0, 4.0]), 100, 10).tolist() == [20, 30, 50]
    assert evenly(11, 4).tolist() == [3, 3, 3, 2]


HUNDRED = np.zeros(100)


def test_power_law():
    """Harmonic shares of 1100 beyond one for each of four: 1, 1/2, 1/3, 1/4 of 528."""
    owned = dealt(
        power_law_sizes,
        np.zeros(1104),
        4,
        min_size=1,
    )
    assert sorted(sizes(owned)) == [133, 177, 265, 529]
    assert sizes(dealt(power_law_sizes, HUNDRED, 4, exponent=0)) == [25] * 4


def test_lognormal():
    """The logarithms of what is beyond the least size spread by sigma."""
    owned = dealt(
        lognormal_sizes,
        np.zeros(4_000_000),
        2000,
        sigma=0.5,
    )
    spare = np.array(sizes(owned)) - 10
    assert np.log(spare).std() == pytest.approx(0.5, rel=0.05)
    assert sizes(dealt(lognormal_sizes, HUNDRED, 4, sigma=0)) == [25] * 4
    assert min(sizes(dealt(lognormal_sizes, HUNDRED, 4, sigma=1e9))) == 10


@pytest.mark.parametrize("rule", [iid, lognormal_sizes, power_law_sizes])
def test_quantity_rules_do_not_look_at_labels(rule):
    assert lists(dealt(rule, np.zeros(500), 7)) == lists(dealt(rule, np.arange(500), 7))


# refusals

# of two examples of each of five classes: rule, clients, options, message
REFUSALS = """
iid                  11  {}                       data.clients must be at most 10
dirichlet             4  {}                       min_size=10, which needs 40 examples
dirichlet            11  {"min_size":2}           at most 5, as there are 10 examples
dirichlet            11  {"min_size":1}           at most 10, as there are 10 examples, got 11
dirichlet_min_share  11  {"alpha":1}              data.clients must be at most 10
dirichlet_sample      2  {"examples":11}          examples must be at most 10, the number
dirichlet_mixture     4  {"min_size":3}           got 4 with data.partition.min_size=3
shards                4  {"shards_per_client":3}  with data.partition.shards_per_client=3
k_classes             4  {"classes_per_client":6}  between 2, so that every class has one of
k_classes             2  {"classes_per_client":2}  classes_per_client must be between 3
k_classes             3  {"classes_per_client":5}  class 0 has 2 examples, too few for the 3
consecutive_classes   5  {"least":9}              classes of client 0 have fewer than the 9
consecutive_classes   5  {"classes_per_client":6}  at most the number of classes, 5, got 6
similarity           11  {}                       data.clients must be at most 10
contiguous           11  {}                       data.clients must be at most 10
half_classes          1  {}                       >= 2, got 1; use data/partition=stratified
half_classes         10  {}                       5 clients cannot share 4 examples; lower
half_classes          4  {"classes":[0,7]}        of the labels 0 to 4, got [0, 7]; null is the
half_classes          4  {"classes":[0,1,2,3,4]}  but not all, of the labels 0 to 4
one_class             4  {}                       at least the number of classes, 5, for one class
one_class            11  {}                       class 0 has 2 examples, too few for the 3
bernoulli_dirichlet   4  {"min_size":3}           got 4 with data.partition.min_size=3
lognormal_sizes       4  {}                       got 4 with data.partition.min_size=10
power_law_sizes       4  {}                       got 4 with data.partition.min_size=10
"""


@pytest.mark.parametrize(
    ("rule", "clients", "options", "message"),
    cases(REFUSALS),
)
def test_refusals_say_what_would_do(rule, clients, options, message):
    y = np.repeat(np.arange(5), 2)
    with rejected(re.escape(message)):
        dealt(
            globals()[rule],
            y,
            int(clients),
            **json.loads(options),
        )
