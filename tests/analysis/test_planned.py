"""Confirmed and exploratory verdicts: which runs belong to a plan, and when they are used."""

import pytest
import yaml
from one_claim import SLOW, claim, paper, write_runs

from fedbench.analysis import planned
from fedbench.analysis.claims.judge import judge_readings
from fedbench.analysis.planned import PlannedEvidence
from fedbench.config.plans import plans_in
from fedbench.papers.readings import ADOPTED, Readings, Variant
from fedbench.runs.results import Results

CHECK = {"kind": "compare", "by": 0}
OWN = Variant("own", "", "", methods={"new": {"local.lr": 0.5}})


def plan_of(**changes):
    """A plan for the claim on six seeds that have not been run."""
    entry = {
        "id": "p1",
        "date": "2026-01-02",
        "experiments": ["made_up/one"],
        "seeds": [10, 15],
        "claims": {"c": {"check": CHECK}},
        "adopted": {},
        "search": "None.",
        **changes,
    }
    (plan,) = plans_in(yaml.safe_dump([entry]))
    return plan


PLAN = plan_of()


@pytest.fixture(scope="module", autouse=True)
def readings():
    """All of them."""


@pytest.fixture(autouse=True)
def checks(monkeypatch):
    """The checks that are in the paper's file."""
    written = {"c": CHECK}
    monkeypatch.setattr(planned, "papers", lambda: ["made_up"])
    monkeypatch.setattr(planned, "written_checks", lambda paper: written)
    return written


@pytest.fixture
def write(tmp_path):
    """Write runs, by default those that a plan asks for."""

    def of_plan(algo, ahead=0.0, plan=PLAN, seeds=None, **more):
        plans = {} if plan is None else {plan.id: plan.digest}
        seeds = PLAN.every_seed if seeds is None else seeds
        write_runs(tmp_path, algo, ahead, seeds=seeds, plans=plans, **more)

    return of_plan


@pytest.fixture
def explored(write):
    """Runs that no plan has asked for: ahead on six splits."""
    write("new", 0.1, plan=None, seeds=range(6))
    write("old", plan=None, seeds=range(6))


@pytest.fixture
def behind(write, explored):
    """All planned runs beside the exploratory ones: behind on six splits."""
    write("new", -0.1)
    write("old")


@pytest.fixture
def evidence(tmp_path):
    def of(*plans, variants=()):
        readings = Readings(variants={variant.id: variant for variant in variants})
        return PlannedEvidence(paper(readings), Results(tmp_path), plans or [PLAN])

    return of


@pytest.fixture
def verdict(evidence):
    """The adopted verdict: its word, the plan, and the exploratory word beside it."""

    def judged(*plans, setups=(), **more):
        v = evidence(*plans, **more).judge(claim(*setups))[ADOPTED]
        return v.word, v.confirmed, v.explored

    return judged


EXPLORATORY = ("holds", "", "")
CONFIRMED = ("fails", "p1", "holds")


def seeds_of(runs):
    return sorted((run.meta["experiment"], run.meta["algo"], run.meta["seed"]) for run in runs)


# ---- before and after the last run


def test_planned_runs_are_not_used_before_all_have_ended(write, explored, evidence, verdict):
    """Of two methods and six seeds, one run is missing."""
    write("new", -0.1)
    write("old", seeds=range(10, 15))
    assert verdict() == EXPLORATORY
    incomplete = evidence()
    assert incomplete.complete == {}
    assert {run.meta["seed"] for run in incomplete.shown} == set(range(6))
    (text,) = incomplete.progress
    assert text.startswith("plan p1 of 2026-01-02 (c): 11 runs have ended, 1 ")
    write("old", seeds=[15])
    assert verdict() == CONFIRMED
    assert evidence().progress == []


def test_a_complete_plan_replaces_the_exploratory_runs_of_its_experiments(write, behind, evidence):
    """Those of another experiment stay."""
    write("new", plan=None, seeds=[0], setup="two")
    shown = [("made_up/one", algo, seed) for algo in ("new", "old") for seed in range(10, 16)]
    assert seeds_of(evidence().shown) == [*shown, ("made_up/two", "new", 0)]


def test_without_exploratory_runs_there_is_no_exploratory_word(write, verdict):
    write("new", -0.1)
    write("old")
    assert verdict() == ("fails", "p1", "not run")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("diverged", CONFIRMED), ("failed", EXPLORATORY), ("running", EXPLORATORY)],
)
def test_a_run_that_diverged_has_ended(write, explored, verdict, status, outcome):
    """It counts as behind its partner, so that the new method is still behind on all splits."""
    write("new", -0.1, seeds=range(10, 15))
    write("new", seeds=[15], status=status)
    write("old")
    assert verdict() == outcome


# ---- which runs belong to a plan


@pytest.mark.parametrize("plan", [None, plan_of(search="rates"), plan_of(id="p2")])
def test_runs_without_the_plans_digest_are_exploratory(write, explored, evidence, verdict, plan):
    """Whatever their seeds are: of 12 splits six are ahead and six behind."""
    write("new", -0.1, plan)
    write("old", plan=plan)
    assert evidence().complete == {}
    assert verdict() == ("undecided", "", "")


@pytest.mark.parametrize("split", [15, 0])
def test_a_planned_run_has_a_split_of_its_own(write, explored, verdict, split):
    """The split of its seed may also be typed."""
    write("new", -0.1)
    write("old", seeds=range(10, 15))
    write("old", seeds=[15], split=split)
    assert verdict() == (CONFIRMED if split == 15 else EXPLORATORY)


def test_a_reduced_run_is_no_planned_run(write, explored, verdict):
    write("new", -0.1)
    write("old", seeds=range(10, 15))
    write("old", seeds=[15], departures={"participation": [1.0, 0.5]})
    assert verdict() == EXPLORATORY


@pytest.mark.parametrize(
    ("variant", "algos"),
    [(SLOW, ["new", "old"]), (OWN, ["new"])],
    ids=lambda given: getattr(given, "id", None),
)
def test_planned_variants_are_run_as_well(write, explored, verdict, variant, algos):
    """For the methods whose settings they change."""
    plan = plan_of(variants=[variant.id])
    write("new", -0.1, plan)
    write("old", plan=plan)
    for algo in algos:
        assert verdict(plan, variants=[variant])[1] == ""
        write(algo, plan=plan, lr=0.5)
    assert verdict(plan, variants=[variant]) == CONFIRMED


def test_a_verdict_counts_without_the_variants_that_its_plan_leaves_out(behind, evidence):
    """An exploratory verdict needs them all."""
    judging = evidence(variants=[OWN])
    assert judging.judge(claim())[ADOPTED].unread == ()
    assert judge_readings(claim(), judging.explored)[ADOPTED].unread == ("own",)


def test_a_run_may_belong_to_several_plans(write, explored, evidence, verdict, tmp_path):
    """The first complete one that has the claim confirms the verdict."""
    other = plan_of(id="p2", claims={})
    both = {plan.id: plan.digest for plan in (PLAN, other)}
    for algo, ahead in (("new", -0.1), ("old", 0.0)):
        write_runs(tmp_path, algo, ahead, seeds=PLAN.every_seed, plans=both)
    assert list(evidence(other, PLAN).complete) == ["p2", "p1"]
    assert len(evidence(other, PLAN).shown) == 12
    assert verdict(other, PLAN) == CONFIRMED


# ---- which verdicts a plan confirms


def test_a_margin_that_has_changed_since_makes_a_verdict_exploratory(behind, verdict, checks):
    assert verdict() == CONFIRMED
    checks["c"] = CHECK | {"by": -1}
    assert verdict() == EXPLORATORY


def test_a_margin_that_has_changed_in_the_plan_makes_its_runs_exploratory(behind, verdict):
    """The runs have the digest of the plan as it was; of 12 splits six are ahead."""
    changed = plan_of(claims={"c": {"check": CHECK | {"by": -1}}})
    assert verdict(changed) == ("undecided", "", "")


def test_code_that_has_changed_since_makes_a_verdict_exploratory(behind, verdict, monkeypatch):
    monkeypatch.setattr(planned, "code_digest", lambda claim, paper: "other")
    assert verdict() == EXPLORATORY


def test_a_claim_that_the_plan_lacks_is_exploratory(write, explored, verdict):
    plan = plan_of(claims={"c2": {"check": CHECK}})
    write("new", -0.1, plan)
    write("old", plan=plan)
    assert verdict(plan) == EXPLORATORY


def test_a_claim_that_needs_further_experiments_is_exploratory(write, verdict):
    """The plan has setup one, and the exploratory runs are of both."""
    write("new", 0.1)
    write("old")
    for setup in ("one", "two"):
        write("new", 0.1, plan=None, seeds=range(6), setup=setup)
        write("old", plan=None, seeds=range(6), setup=setup)
    assert verdict(setups=("one", "two")) == EXPLORATORY


def test_a_claim_that_no_runs_decide_has_the_comparisons_of_its_plan(write, explored, evidence):
    """Neither the plan nor the exploratory runs have setup two."""
    write("new", 0.2)
    write("old")
    verdict = evidence().judge(claim("one", "two"))[ADOPTED]
    assert (verdict.word, verdict.explored) == ("not run", "not run")
    one, two = verdict.comparisons
    assert set(one.differences) == set(range(10, 16))
    assert min(one.differences.values()) > 0.15
    assert two.differences == {}


def test_a_later_plan_that_decides_a_claim_comes_before_one_that_does_not(write, evidence):
    """The first has setup one alone, the second both setups."""
    second = plan_of(id="p2", experiments=["made_up/one", "made_up/two"], seeds=[20, 25])
    write("new", 0.1)
    write("old")
    for setup in ("one", "two"):
        for algo, ahead in (("new", 0.1), ("old", 0.0)):
            write(algo, ahead, second, second.every_seed, setup=setup)
    verdict = evidence(PLAN, second).judge(claim("one", "two"))[ADOPTED]
    assert (verdict.word, verdict.confirmed) == ("holds", "p2")


@pytest.mark.parametrize(("looks", "word"), [(1, "holds"), (2, "undecided")])
def test_the_level_is_divided_by_the_number_of_looks(write, evidence, looks, word):
    """Ahead on all of five splits: 1 / 32 is at most 0.05, but not at most 0.025."""
    plan = plan_of(seeds=[10, 14], looks=looks)
    write("new", 0.1, plan, plan.every_seed)
    write("old", plan=plan, seeds=plan.every_seed)
    v = evidence(plan).judge(claim())[ADOPTED]
    assert (v.word, v.confirmed) == (word, "p1")
    assert {c.alpha for c in v.comparisons} == {0.05 / looks}
