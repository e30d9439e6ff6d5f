"""The claims with functions of their own: runs made up here, verdicts by hand (p of n signs alike: 2^-n)."""

import math

import pandas as pd
import pytest
from units import by_unit, unit

from fedbench.analysis.claims import judge
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.papers.claims import functions
from fedbench.papers.registry import papers

SEEDS = 10


class Run:
    """What a run on disk has."""

    def __init__(self, rounds=None, clients=None):
        self._rounds, self._clients = rounds, clients

    def rounds(self):
        return pd.DataFrame(self._rounds)

    def clients(self):
        return pd.DataFrame(self._clients)

    def last_round(self):
        return self._rounds[-1]


def curve(values, field="accuracy_mean", every=10):
    return Run([{"round": every * i, field: v} for i, v in enumerate(values)])


def final(**fields):
    return Run([{"round": 0, **fields}, {"round": 5, **fields}])


def every_seed(make, seeds=SEEDS):
    """Runs that differ a little from seed to seed."""
    return {s: make(1 + s / 100) for s in range(seeds)}


class Given(Evidence):
    """Runs by (setup, method) or (setup, method, alpha)."""

    def __init__(self, runs, **found):
        super().__init__([])
        self.given, self.made = runs, found

    def choices(self, paper, row):
        key = (row.setup, row.algo, row.hyperparameters.get("alpha"))
        return [MatchedRuns(by_unit(self.given.get(key, self.given.get(key[:2], {}))), **self.made.get(row.algo, {}))]


def claim(paper, name):
    return next(c for c in papers()[paper].claims if c.id == name)


def verdict(paper, name, runs, **found):
    return judge(papers()[paper], claim(paper, name), Given(runs, **found), functions(paper))


def compare(paper, name, runs, **found):
    return functions(paper)[name](papers()[paper], Given(runs, **found))


def test_a_paper_without_functions():
    assert not functions("fafed")
    assert not functions("no_such_paper")


# ---- AdaFed, c14: a lead as a ratio

RIVALS = ("fedavg", "qffl", "fedmgda", "term", "afl", "ditto")


def stds(skewed, original, seeds=SEEDS, **others):
    """Runs of Table 3: the STD of AdaFed and of the best rival, in percent; the other rivals are far behind."""
    runs = {}
    for setup, (own, best) in (("femnist_skewed", skewed), ("femnist_original", original)):
        values = {"adafed": own, **dict.fromkeys(RIVALS, 99.0), "term": best, **others}
        runs |= {(setup, m): {s: final(accuracy_std=v / 100) for s in range(seeds)} for m, v in values.items()}
    return runs


def test_a_lead_is_that_over_the_best_of_the_others():
    """2 against 8 is four times, 2 against 4 twice: ahead by 2."""
    v = verdict("adafed", "c14", stds((2, 8), (2, 4)))
    assert v.verdict == "holds"
    assert "ahead by 2 on average over 10 seeds" in v.evidence
    assert "lead of AdaFed over the best other in STD %, as a ratio, on " in v.evidence
    assert verdict("adafed", "c14", stds((2, 4), (2, 8))).verdict == "fails"


def test_a_lead_takes_only_seeds_with_every_rival():
    """The best of the others may be the one that is missing."""
    runs = stds((2, 8), (2, 4))
    del runs["femnist_skewed", "ditto"][9]
    assert "over 9 seeds" in verdict("adafed", "c14", runs).evidence
    del runs["femnist_original", "afl"]
    assert verdict("adafed", "c14", runs).evidence == "0 of 1 comparisons have been run"


# ---- AdaFed, c16: two clients


def losses(*clients, rounds=(0, 5, 9)):
    return [{"round": t, "client": k, "train_loss": v[i]} for k, v in enumerate(clients) for i, t in enumerate(rounds)]


def two_clients(low, high, **more):
    return {("cifar10_s1", "adafed"): {s: Run(clients=losses(low, high, **more)) for s in range(SEEDS)}}


def test_two_clients_by_hand():
    """The high one falls by 2.4, the low one by 0.5; the gap shrinks from 2 to 0.1, below half of 2."""
    drop, close, *other = compare("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 1.0, 0.6)))
    assert (drop.mean, close.mean) == (pytest.approx(1.9), pytest.approx(0.9))
    assert [c.n for c in other] == [0, 0]  # CIFAR-100
    drop, close, *_ = compare("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 2.5, 2.4)))
    assert (drop.mean, close.mean) == (pytest.approx(0.1), pytest.approx(-0.9))  # faster, but 1.9 apart in the end
    assert verdict("adafed", "c16", two_clients((1.0, 0.8, 0.5), (3.0, 2.5, 2.4))).verdict == "fails"


def test_two_clients_need_a_course():
    """Where only the last round's clients were kept, nothing can be said."""
    v = verdict("adafed", "c16", two_clients((1.0,), (3.0,), rounds=(9,)))
    assert (v.verdict, v.evidence) == ("not run", "0 of 4 comparisons have been run")


# ---- AdaFed, c18: rounds to 40 %

SIX = ("fedavg", "qffl", "fedmgda", "fedfa", "term", "ditto")


def reaches(at, last=2000):
    """A curve evaluated every 10 rounds that is at 40 % from a round on; None: never."""
    values = [0.4 if at is not None and r >= at else 0.3 for r in range(0, last + 1, 10)]
    return {s: curve(values) for s in range(SEEDS)}


def figure5(adafed, others):
    return {("cifar10_s1", "adafed"): adafed} | {("cifar10_s1", m): others for m in SIX}


@pytest.mark.parametrize(
    ("own", "others", "word"),
    [
        (400, 900, "holds"), (430, 820, "holds"), (450, 900, "fails"), (400, 800, "fails"), (100, None, "holds"),
        (None, 900, "fails"),
    ],
)  # fmt: skip
def test_rounds_to_a_target_with_a_tenth_of_slack(own, others, word):
    """AdaFed within 440 rounds, the others not before 810."""
    assert verdict("adafed", "c18", figure5(reaches(own), reaches(others))).verdict == word


def test_how_far_from_the_bounds():
    first, *_, own = compare("adafed", "c18", figure5(reaches(400), reaches(900)))
    assert (own.mean, first.mean) == (pytest.approx(40), pytest.approx(90))
    assert own.label == "rounds of AdaFed to 40 % at most 440"
    assert first.label == "rounds of FedAvg to 40 % at least 810"


@pytest.mark.parametrize(
    ("own", "last", "mean"), [(None, 300, None), (None, 420, None), (None, 450, -10), (100, 300, 340)]
)
def test_a_run_that_stopped_before_the_bound_says_nothing(own, last, mean):
    """It may still reach the accuracy before round 440; one that has reached it is in time."""
    found = compare("adafed", "c18", figure5(reaches(own, last), {}))[-1]
    assert found.mean == (None if mean is None else pytest.approx(mean))


# ---- AdaFedAdam, c15 and c17: the front over alpha


def point(mean, spread):
    """A run's error and relative spread, which are derived from accuracies: error 1 - mean, spread std / error."""
    return every_seed(lambda e: final(accuracy_mean_weighted=1 - e * mean, accuracy_std_weighted=e * spread * e * mean))


def front(points, **others):
    runs = {("synthetic", "adafedadam", a): point(*v) for a, v in points.items()}
    return runs | {("synthetic", m): point(*v) for m, v in others.items()}


def test_a_fall_that_is_steeper_at_first():
    """From 1 to 4 the spread falls by 0.3, from there to 8 by 0.1; seeds stretch both by 1 to 1.09."""
    runs = front({1.0: (0.1, 0.9), 4.0: (0.2, 0.6), 8.0: (0.3, 0.5)})
    v = verdict("adafedadam", "c15", runs)
    assert v.verdict == "holds"
    assert v.evidence.startswith("4 comparisons: 4 ahead")
    steeper, *ordered = compare("adafedadam", "c15", runs)
    assert steeper.mean == pytest.approx(0.2 * 1.045)
    assert [c.mean for c in ordered] == pytest.approx([0.3 * 1.045, 0.1 * 1.045, 0.1 * 1.045])
    later = front({1.0: (0.1, 0.7), 4.0: (0.2, 0.6), 8.0: (0.3, 0.3)})
    assert verdict("adafedadam", "c15", later).verdict == "fails"


BASELINES = dict.fromkeys(("fedadam", "fednova", "qfedavg"), (0.8, 0.9))
ALPHAS = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)


def test_dominance_needs_one_point_that_is_better_in_both():
    """Of eight points, so that a p-value of 1 / 1024 counts eight times."""
    level = dict.fromkeys(ALPHAS, (0.3, 0.3))
    v = verdict("adafedadam", "c17", front(level | {1.0: (0.1, 0.1)}, fedavg=(0.2, 0.2), **BASELINES))
    assert v.verdict == "holds"
    assert "p = 0.0078" in v.evidence
    split = front(level | {1.0: (0.1, 0.4), 2.0: (0.4, 0.1)}, fedavg=(0.2, 0.2), **BASELINES)
    assert verdict("adafedadam", "c17", split).verdict == "fails"  # no single point is below FedAvg in both


def test_a_point_that_was_not_run_could_still_dominate():
    some = {1.0: (0.3, 0.3), 2.0: (0.4, 0.1)}
    assert verdict("adafedadam", "c17", front(some, fedavg=(0.2, 0.2), **BASELINES)).verdict == "partly measured"
    shown = front({1.0: (0.1, 0.1)}, fedavg=(0.2, 0.2), **BASELINES)
    assert verdict("adafedadam", "c17", shown).verdict == "holds"


# ---- FedCAda, c17: one model against another


def test_two_models_are_compared_method_by_method():
    methods = ("fedavg", "fedadam", "fedams", "fedsps", "fafed", "fedcada")

    def accuracies(small, large):
        places = (("device_cifar10_noniid", small), ("device_cifar10_noniid_resnet18", large))
        return {
            (s, m): every_seed(lambda e, v=v: final(accuracy_mean_weighted=e * v, accuracy_mean=e * v))
            for s, v in places
            for m in methods
        }

    v = verdict("fedcada", "c17", accuracies(0.6, 0.5))
    assert v.verdict == "holds"
    assert v.evidence.startswith("6 comparisons: 6 ahead")
    assert verdict("fedcada", "c17", accuracies(0.5, 0.6)).verdict == "fails"


# ---- FedFa, c07 and c12


SYNTHETIC = ("synthetic_iid", "synthetic_0_0", "synthetic_05_05", "synthetic_1_1")


def swinging(heights):
    return {
        (s, "fedavg"): every_seed(lambda e, h=h: curve([e * h * (i % 2) for i in range(6)]))
        for s, h in zip(SYNTHETIC, heights, strict=True)
    }


def test_roughness_rises_from_setup_to_setup():
    v = verdict("fedfa", "c07", swinging((0.1, 0.2, 0.3, 0.4)))
    assert (v.verdict, v.evidence[:22]) == ("holds", "3 comparisons: 3 ahead")
    assert verdict("fedfa", "c07", swinging((0.4, 0.3, 0.2, 0.1))).verdict == "fails"
    assert verdict(
        "fedfa", "c07", swinging((0.1, 0.2, 0.3, 0.4)), fedavg={"others": ((unit(9), "diverged"),)}
    ).verdict == ("undecided")


def mirrored(difference, noise=0.0, seeds=SEEDS):
    """Final accuracies at alpha and 1 - alpha, apart by a difference and by noise of one sign after the other."""
    runs = {}
    for a, sign in [(i / 10, 0.0) for i in range(5)] + [(i / 10, 1.0) for i in range(6, 11)]:
        values = {s: 0.5 + s / 50 + sign * difference + (2 * sign - 1) * noise * (-1) ** s for s in range(seeds)}
        runs["synthetic_1_1", "fedfa", a] = {s: curve([v, v]) for s, v in values.items()}
    return runs


@pytest.mark.parametrize(
    ("difference", "word"), [(0.0, "holds"), (0.009, "holds"), (-0.009, "holds"), (0.011, "fails"), (-0.011, "fails")]
)
def test_symmetry_within_a_margin(difference, word):
    """Two one-sided tests: what is not shown to be small is not small."""
    assert verdict("fedfa", "c12", mirrored(difference)).verdict == word
    assert verdict("fedfa", "c12", mirrored(difference, seeds=3)).verdict == "undecided"


def test_noise_is_not_symmetry():
    assert verdict("fedfa", "c12", mirrored(0.0, noise=0.02)).verdict == "undecided"
    assert math.isclose(mirrored(0.0, noise=0.02)["synthetic_1_1", "fedfa", 1.0][0].last_round()["accuracy_mean"], 0.52)
