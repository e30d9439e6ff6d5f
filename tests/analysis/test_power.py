"""How many blocks decide a claim: the test's power by hand and by simulation, and claims of a paper made up here."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from fedbench.analysis.matching import Evidence, MatchedRuns, Unit
from fedbench.analysis.power import Needed, blocks_needed, compared, exact_power, needed
from fedbench.analysis.stats import paired
from fedbench.papers.checks import Best, NotBest, PropertyTest
from fedbench.papers.registry import Claim, papers

PHI = NormalDist().cdf


def simulated(n, effect, alpha, draws=1500):
    """The share of samples that the sign-flip test rejects, as ``paired`` computes it."""
    samples = np.random.default_rng(n).normal(effect, 1.0, (draws, n))
    return np.mean([paired(x).greater <= alpha for x in samples])


# ---- the test


def test_five_blocks_decide_if_all_of_them_agree():
    """At 5 %, 2^-5 is the only p-value of five blocks that is small enough: the power is that of five equal signs."""
    assert exact_power(5, 1.7, 1) == pytest.approx(PHI(1.7) ** 5)
    assert PHI(1.7) ** 5 == pytest.approx(0.796, abs=1e-3)
    assert PHI(1.72) ** 5 > 0.8
    assert (blocks_needed(1.72, 0.05), blocks_needed(1.70, 0.05)) == (5, 6)


def test_two_blocks_that_reject_for_half_of_the_signs():
    """The sum of two differences is among the two largest of four if both are positive or the larger one is, that is,
    if it is positive: with unit variances the chance is that of a normal number above -√2 times the effect."""
    assert exact_power(2, 0.6, 2) == pytest.approx(PHI(math.sqrt(2) * 0.6), abs=1e-5)
    # and the third sum is lost by both signs negative only
    assert exact_power(2, 0.6, 3) == pytest.approx(1 - PHI(-0.6) ** 2, abs=1e-4)


@pytest.mark.parametrize(("n", "effect", "alpha"), [(6, 1.3, 0.05), (7, 1.2, 0.02), (8, 1.2, 0.009)])
def test_the_exact_power_is_that_of_the_test(n, effect, alpha):
    rejected = math.floor(alpha * 2**n)
    assert rejected in (1, 2, 3)
    assert exact_power(n, effect, rejected) == pytest.approx(simulated(n, effect, alpha), abs=0.03)


@pytest.mark.parametrize(("effect", "alpha"), [(1.2, 0.05), (0.9, 0.05), (1.2, 0.05 / 3), (1.5, 0.05 / 12)])
def test_the_approximation_is_right_within_one_block(effect, alpha):
    n = blocks_needed(effect, alpha)
    assert n <= 12
    assert simulated(n + 1, effect, alpha) > 0.79
    assert simulated(n - 1, effect, alpha) < 0.81


def test_small_effects_need_many_blocks_and_none_can_be_too_many():
    """(1.645 + 0.842)² / 0.2² + 1.645² / 2 = 154.6 + 1.4."""
    assert blocks_needed(0.2, 0.05) == 156
    assert blocks_needed(math.inf, 0.05) == 5
    assert blocks_needed(math.inf, 0.05 / 36) == 10  # 2^-9 is above it
    assert blocks_needed(0.0, 0.05) == blocks_needed(0.01, 0.05) == 10_001
    numbers = [blocks_needed(e, 0.05) for e in np.linspace(0.3, 4, 40)]
    assert numbers == sorted(numbers, reverse=True)


# ---- claims

ADAM = papers()["adafedadam"]


class Measured(Evidence):
    """Runs of a table: numbers by algorithm and seed."""

    def __init__(self, numbers):
        super().__init__([])
        self.numbers = numbers

    def comparable(self, paper, rows):
        return [Found({}, setup=paper.setups[r.setup].title, digest=r.algo) for r in rows if self.put(r) is None]

    def put(self, row):
        Found.numbers[row.algo] = self.numbers.get(row.algo, ())


class Found(MatchedRuns):
    numbers = {}  # noqa: RUF012

    def values(self, metric, which="last"):
        return {Unit(0, seed): v for seed, v in enumerate(self.numbers[self.digest])}


def claim(check):
    return Claim("c99", "", "", check, "supports")


def of(check, evidence=None):
    return needed(ADAM, claim(check), evidence or Evidence([]))


def leads(metric="avg", setup="synthetic"):
    """AdaFedAdam's printed leads over the others in Table 5, and the root of the sum of both squared ±."""
    rows = {r.algo: r.values[metric] for r in ADAM.tables["table5"].rows if r.setup == setup}
    own = rows.pop("adafedadam")
    return {a: (own.mean - v.mean, math.hypot(own.std, v.std)) for a, v in rows.items()}


def best(**more):
    return Best(table="table5", setups=("synthetic",), metrics=("avg",), algo="adafedadam", **more)


def test_printed_numbers_and_their_spread():
    """The hardest comparison decides for the claim, the easiest one against it, at the level for their number."""
    effects = {a: abs(d) / s for a, (d, s) in leads().items()}
    hardest, easiest = min(effects.values()), max(effects.values())
    found = of(best())
    assert found.holds == blocks_needed(hardest, 0.05)
    assert found.fails == blocks_needed(easiest, 0.05 / len(effects))
    assert (found.comparisons, found.measured, found.printed, found.unknown) == (len(effects), 0, len(effects), 0)
    assert {r.algo for r in found.rows} == {"adafedadam", *effects}


def test_measured_spread_replaces_the_printed_one():
    """Against FedAvg the paired differences measured are 1, 2 and 3, with a deviation of 1, whatever their mean is."""
    measured = Measured({"adafedadam": (91.0, 92.0, 93.0), "fedavg": (90.0, 90.0, 90.0)})
    found = of(best(), measured)
    effects = {a: abs(d) / (1.0 if a == "fedavg" else s) for a, (d, s) in leads().items()}
    assert found.holds == blocks_needed(min(effects.values()), 0.05)
    assert found.fails == blocks_needed(max(effects.values()), 0.05 / len(effects))
    assert (found.measured, found.printed) == (1, len(effects) - 1)


def test_differences_that_do_not_vary_need_as_few_blocks_as_there_can_be():
    same = dict.fromkeys(leads(), (90.0, 90.0))
    found = of(best(), Measured({**same, "adafedadam": (91.0, 91.0)}))
    m = len(same)
    assert (found.holds, found.fails) == (5, math.ceil(math.log2(m / 0.05)))


def test_one_of_several_rivals_is_enough_to_beat_a_method():
    """Any rival may be the one that is ahead, each at the level for their number; against it, all must be behind.

    Only AdaFedAdam is printed ahead of FedNova, and nobody is ahead of AdaFedAdam, which no number of seeds changes.
    """
    lead, spread = leads()["fednova"]
    found = of(NotBest(table="table5", setups=("synthetic",), metrics=("avg",), algo="fednova"))
    assert (found.holds, found.never) == (blocks_needed(lead / spread, 0.05 / 4), False)
    found = of(NotBest(table="table5", setups=("synthetic",), metrics=("avg",), algo="adafedadam"))
    assert (found.holds, found.never) == (None, True)
    assert found.fails == blocks_needed(min(d / s for d, s in leads().values()), 0.05)
    assert found.comparisons == 4


@pytest.mark.parametrize("name", ["c02", "c11"])
def test_printed_differences_against_a_claim_never_let_it_hold(name):
    """FedAdam is printed ahead on Sent140 (69.25 and 68.9 %), and more even than AdaFedAdam at Dirichlet 1."""
    found = needed(ADAM, next(c for c in ADAM.claims if c.id == name), Evidence([]))
    assert (found.holds, found.never, found.fails, found.unknown) == (None, True, 9, 0)


def test_without_printed_differences_nothing_is_known():
    curves = next(c for c in ADAM.claims if c.check is not None and type(c.check).__name__ == "Curves")
    found = needed(ADAM, curves, Evidence([]))
    assert (found.holds, found.fails, found.unknown) == (None, None, found.comparisons)
    fedfa = papers()["fedfa"]  # prints no ±
    row = fedfa.tables["table2"].rows[0]
    check = Best(table="table2", setups=(row.setup,), metrics=("avg",), algo="fedfa")
    found = needed(fedfa, claim(check), Evidence([]))
    assert (found.holds, found.fails, found.unknown) == (None, None, 2)


def test_claims_that_no_run_decides_have_no_number_of_blocks():
    assert of(PropertyTest(test="tests/x.py")) is None
    assert isinstance(of(best()), Needed)


# ---- the rows of a claim


def test_a_claim_about_one_setup_of_a_figure_has_no_rows_of_the_others():
    """c26 of FedFa is about the IID set; Figure 6 also shows sets whose data may be missing."""
    paper = papers()["fedfa"]
    rows, groups = compared(paper, next(c for c in paper.claims if c.id == "c26"))
    assert {row.setup for row in rows} == {"synthetic_iid"}
    assert {row.setup for row in paper.figures["figure6"].rows} > {"synthetic_iid"}
    assert groups == (paper.setups["synthetic_iid"].title,) * 2
