"""Plans: how their files are read, the digest of each entry, and the runs that record it."""

import copy
import os

import plan_claims
import pytest
import yaml
from command_line import meta_of
from tools import ROOT, composed, rejected

from fedbench.config.compose import compose_run
from fedbench.config.plans import digests_of, plans_in, plans_of
from fedbench.papers.registry import papers, written_checks

PLAN = {
    "id": "p1",
    "date": "2026-01-02",
    "experiments": ["adafedadam/table5_synthetic"],
    "seeds": [10, 12],
    "claims": {"c01": {"check": {"kind": "compare", "by": 2}, "margin": "the text"}},
    "adopted": {"weights": "equal (text)"},
    "search": "None.",
    "variants": ["code"],
    "looks": 1,
    "amendments": [{"date": "2026-01-03", "reason": "a", "before": "holds", "after": "fails"}],
}


def write(folder, *plans, paper="adafedadam"):
    """Write the plans for a paper, and return the file."""
    file = folder / "plans" / f"{paper}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(list(plans)))
    return file


def digest(plan):
    (read,) = plans_in(yaml.safe_dump([plan]))
    return read.digest


# ---- reading


def test_a_plan_has_what_is_written():
    (plan,) = plans_in(yaml.safe_dump([PLAN]))
    assert plan.seeds == (10, 12)
    assert list(plan.every_seed) == [10, 11, 12]
    assert plan.claims["c01"].check == {"kind": "compare", "by": 2}
    assert plan.claims["c01"].code == ""
    assert plan.amendments[0].after == "fails"
    assert plans_in("") == ()


# the keys of a plan that are changed, and words of the message
FAULTS = """
- [{sedes: 1}, sedes]
- [{seeds: [12, 10]}, 'must be the first and the last seed; got [12, 10]']
- [{seeds: [12]}, seeds]
- [{looks: 0}, looks]
- [{claims: {c01: {margin: text}}}, check]
- [{claims: {c01: {check: {}, by: 2}}}, by]
- [{amendments: [{date: today}]}, reason]
- [{search: null}, search]
"""


@pytest.mark.parametrize(("change", "words"), yaml.safe_load(FAULTS))
def test_a_fault_is_refused_with_the_file(tmp_path, change, words):
    file = write(tmp_path, PLAN | change)
    with rejected("is not a valid list of plans") as error:
        plans_of(tmp_path, "adafedadam")
    assert str(file) in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "key", ["id", "date", "experiments", "seeds", "claims", "adopted", "search"]
)
def test_a_plan_lacks_nothing(key):
    """Variants, looks and amendments may be left out."""
    with pytest.raises(ValueError, match=key):
        plans_in(yaml.safe_dump([{k: v for k, v in PLAN.items() if k != key}]))


def test_two_plans_of_a_paper_have_different_ids(tmp_path):
    write(tmp_path, PLAN, PLAN)
    with rejected("two plans have the same id: p1, p1"):
        plans_of(tmp_path, "adafedadam")
    write(tmp_path, PLAN, PLAN | {"id": "p2"})
    assert [plan.id for plan in plans_of(tmp_path, "adafedadam")] == ["p1", "p2"]


# ---- digests


CHANGES = """
id: p2
date: '2026-01-03'
experiments: [adafedadam/table7_synthetic_momentum]
seeds: [10, 13]
claims: {c01: {check: {kind: compare, by: 2.5}, margin: the text}}
adopted: {weights: unequal}
search: rates
variants: []
looks: 2
amendments: []
"""


def test_the_digest_changes_with_any_entry():
    digests = {digest(PLAN)}
    for key, value in yaml.safe_load(CHANGES).items():
        digests.add(digest(PLAN | {key: value}))
    margin = copy.deepcopy(PLAN)
    margin["claims"]["c01"]["margin"] = "the table"
    digests.add(digest(margin))
    assert len(digests) == 1 + len(PLAN) + 1


def test_the_digest_is_that_of_the_content():
    """Neither the order of keys nor the layout, comments or other plans matter."""
    turned = dict(reversed(PLAN.items()))
    text = yaml.safe_dump([{**PLAN, "id": "p0"}, turned], sort_keys=False)
    assert plans_in(f"# why\n{text}")[1].digest == digest(PLAN)


# ---- places


@pytest.mark.parametrize("place", ["", "published", "published/adafedadam"])
def test_plans_are_found_above_a_published_report(tmp_path, monkeypatch, place):
    write(tmp_path / "results", PLAN)
    folder = tmp_path / "results" / place
    assert [plan.id for plan in plans_of(folder, "adafedadam")] == ["p1"]
    assert plans_of(folder, "fedfa") == ()
    monkeypatch.chdir(tmp_path)
    assert plans_of(folder.relative_to(tmp_path), "adafedadam")


def test_plans_are_not_found_elsewhere(tmp_path):
    write(tmp_path / "results", PLAN)
    assert plans_of(tmp_path, "adafedadam") == ()
    assert plans_of(tmp_path / "results" / "a" / "b" / "c", "adafedadam") == ()


def test_a_file_that_has_changed_is_read_again(tmp_path):
    file = write(tmp_path, PLAN)
    assert plans_of(tmp_path, "adafedadam")[0].looks == 1
    write(tmp_path, PLAN | {"looks": 2})
    os.utime(file, ns=(0, 7))
    assert plans_of(tmp_path, "adafedadam")[0].looks == 2


# ---- runs


@pytest.mark.parametrize(
    ("experiment", "seed", "ids"),
    [
        ("adafedadam/table5_synthetic", 10, ["p1", "p2"]),
        ("adafedadam/table5_synthetic", 12, ["p1", "p2"]),
        ("adafedadam/table5_synthetic", 13, ["p2"]),
        ("adafedadam/table5_synthetic", 9, []),
        ("adafedadam/table7_synthetic_momentum", 10, []),
        ("fedfa/table5_synthetic", 10, []),
    ],
)
def test_which_plans_ask_for_a_run(tmp_path, experiment, seed, ids):
    plans = {"p1": PLAN, "p2": PLAN | {"id": "p2", "seeds": [10, 13]}}
    write(tmp_path, *plans.values())
    assert digests_of(tmp_path, experiment, seed) == {id: digest(plans[id]) for id in ids}


def test_a_run_of_a_planned_experiment_and_seed_records_the_digest(train, tmp_path):
    """The plan is no part of the identity of a run."""
    small = ["experiment=adafedadam/table5_synthetic", "algo=fedavg", "data.clients=4", "rounds=1"]
    before = compose_run([*small, "seed=10", f"results_dir={tmp_path / 'results'}"])
    assert before.plans == {}
    write(tmp_path / "results", PLAN)
    planned = train(*small, "seed=10")
    assert planned == before.path
    assert meta_of(planned)["plans"] == {"p1": digest(PLAN)}
    assert "plans" not in meta_of(train(*small, "seed=9"))


# ---- scripts/plan_claims.py


def test_the_printed_plan_has_the_checks_as_they_are(capsys, monkeypatch):
    """Also the code of functions, but no margins, which are to be completed."""
    typed = "adafedadam p2 --experiments {} --seeds 30 39 --claims c01,c17 --variants code"
    words = typed.format(*PLAN["experiments"]).split()
    monkeypatch.setattr("sys.argv", ["plan_claims.py", *words])
    plan_claims.main()
    (plan,) = plans_in(capsys.readouterr().out)
    checks = written_checks("adafedadam")
    assert {id: claim.check for id, claim in plan.claims.items()} == {
        id: checks[id] for id in ("c01", "c17")
    }
    assert [bool(claim.code) for claim in plan.claims.values()] == [False, True]
    assert (plan.seeds, plan.variants, plan.looks) == ((30, 39), ("code",), 1)


@pytest.mark.parametrize(
    ("place", "word", "kind"),
    [(3, "adafedadam/table9", "experiments"), (8, "c01,c99", "claims"), (10, "slow", "variants")],
)
def test_a_plan_names_what_exists(monkeypatch, place, word, kind):
    typed = "adafedadam p2 --experiments {} --seeds 30 39 --claims c01,c17 --variants code"
    words = typed.format(*PLAN["experiments"]).split()
    words[place] = word
    monkeypatch.setattr("sys.argv", ["plan_claims.py", *words])
    unknown = word.rpartition(",")[2]
    with pytest.raises(SystemExit, match=f"unknown {kind}: {unknown}; known are "):
        plan_claims.main()


# ---- the plans on record


@pytest.mark.parametrize(
    "paper", sorted(p.stem for p in (ROOT / "results" / "plans").glob("*.yaml"))
)
def test_the_plans_on_record_can_be_carried_out(paper):
    """They name claims, variants and experiments that exist, and every run draws its own split."""
    known = papers()[paper]
    experiments = {setup.experiment for setup in known.setups.values()}
    for plan in plans_of(ROOT / "results", paper):
        assert plan.claims.keys() <= known.claims.keys()
        assert {*plan.variants} <= known.readings.variants.keys()
        assert {*plan.experiments} <= experiments
        for experiment in plan.experiments:
            assert composed(f"experiment={experiment}")[0]["data"]["seed"] is None
