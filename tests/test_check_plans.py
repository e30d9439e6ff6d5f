"""scripts/check_plans.py in a small repository: which runs of plans are accepted, and which not."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import check_plans
import pytest
import yaml

from fedbench.config.plans import plans_in

PLANS = Path("results/plans/made_up.yaml")
PAPER_FILE = Path("fedbench/papers/made_up.yaml")
PLAN = {
    "id": "p1",
    "date": "2026-01-02",
    "experiments": ["made_up/one"],
    "seeds": [10, 15],
    "claims": {"c01": {"check": {"kind": "function"}}},
    "adopted": {},
    "search": "None.",
    "variants": ["slow"],
}
PAPER = """
metrics: [{id: avg, label: average %, direction: higher, field: accuracy_mean}]
methods: [{id: new, label: New, algo: fedprox, keys: {mu: algo.mu}}]
setups:
- {id: one, title: One, experiment: made_up/one}
- {id: two, title: Two, experiment: made_up/two}
tables:
- id: t1
  round: best
  rows:
  - {setup: one, algo: new, hyperparameters: {mu: 1}, values: {avg: 50}}
  - {setup: two, algo: new, hyperparameters: {mu: 1}, values: {avg: 50}}
figures: [{id: f1, setups: [one, two], runs: [{algo: new}]}, {id: f2, setups: [two], runs: []}]
claims: [{id: c01, text: It is new.}]
readings:
  variants:
  - {id: slow, title: slow, why: Sec. 2, set: {local.lr: 0.1}}
  - {id: fast, title: fast, why: Sec. 3, set: {local.lr: 1}}
"""


def git(*arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(plan=PLAN, paper=PAPER):
    """Commit a plan and a paper's file, and return the commit."""
    PLANS.write_text(yaml.safe_dump([plan]))
    PAPER_FILE.write_text(paper)
    git("add", ".")
    git("commit", "--allow-empty", "--quiet", "-m", "a change")
    return git("rev-parse", "HEAD")


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A repository with a commit of a plan and a paper; returns the commit."""
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    for file in (PLANS, PAPER_FILE):
        file.parent.mkdir(parents=True)
    return commit()


@pytest.fixture
def faults(planned, monkeypatch):
    """The faults of a published run, by default of one that follows the plan."""
    monkeypatch.setattr(check_plans, "is_bundle", lambda folder: folder.name == "made_up")

    def found(plan=PLAN, head=planned, dirty=False, seed=10, experiment="made_up/one"):
        (read,) = plans_in(yaml.safe_dump([plan]))
        meta = {
            "plans": {"p1": read.digest},
            "git_commit": head,
            "git_dirty": dirty,
            "seed": seed,
            "experiment": experiment,
        }
        runs = [SimpleNamespace(meta=meta, path="run"), SimpleNamespace(meta={}, path="other")]
        monkeypatch.setattr(check_plans, "Bundle", lambda _: SimpleNamespace(runs=lambda: runs))
        return [fault.removeprefix(f"{PLANS}: p1") for fault in check_plans.faults(Path("results"))]

    return found


def test_a_run_of_an_unchanged_checkout_after_the_plan_is_in_order(faults, capsys, monkeypatch):
    later = commit(paper=PAPER + "# a comment\n")
    assert faults() == faults(head=later) == []
    monkeypatch.setattr("sys.argv", ["check_plans.py"])
    check_plans.main()
    assert capsys.readouterr().out == "all published runs of plans follow them\n"


@pytest.mark.parametrize("dirty", [True, None])
def test_a_run_of_a_changed_checkout_is_a_fault(faults, capsys, monkeypatch, dirty):
    assert faults(dirty=dirty) == [": run comes from a changed checkout"]
    monkeypatch.setattr("sys.argv", ["check_plans.py", "results"])
    with pytest.raises(SystemExit, match="1"):
        check_plans.main()
    assert "run comes from a changed checkout\n" in capsys.readouterr().out


@pytest.mark.parametrize("other", [{"seed": 16}, {"experiment": "made_up/two"}])
def test_a_run_that_the_plan_does_not_name_is_a_fault(faults, other):
    assert faults(**other) == [": run is not among the planned runs"]


def test_plans_in_another_place_are_a_fault(faults):
    """A report reads the plans beside it first."""
    shadow = Path("results/published/made_up/plans/made_up.yaml")
    shadow.parent.mkdir(parents=True)
    shadow.write_text("[]")
    assert faults() == [f"{shadow} would be read in place of {PLANS}; remove it"]


def test_a_claim_in_two_plans_is_a_fault(faults):
    """With two plans, the check in the paper's file would choose between two tests."""
    PLANS.write_text(yaml.safe_dump([PLAN, PLAN | {"id": "p2", "seeds": [20, 25]}]))
    git("commit", "--quiet", "-am", "a second plan")
    assert faults() == [f"{PLANS}: c01 is in 2 plans; amend the first one"]


def test_a_plan_that_is_not_committed_is_a_fault(faults):
    changed = PLAN | {"looks": 2}
    PLANS.write_text(yaml.safe_dump([changed]))
    assert faults() == faults(changed) == [" is not committed as it is"]


def test_a_plan_that_has_changed_after_the_run(faults, planned):
    """The run has the digest of the earlier plan and is exploratory; with the present digest, it
    would need a commit that has the present plan.
    """
    changed = PLAN | {"looks": 2}
    (before,) = plans_in(yaml.safe_dump([PLAN]))
    later = commit(changed)
    assert faults() == [f": it has changed since its runs ({before.digest}) without an amendment"]
    lacks = f": run comes from {planned[:8]}, which lacks the plan"
    assert faults(changed) == [lacks]
    assert faults(changed, head=later) == []
    back = commit()  # the plan is in force since this commit alone
    assert faults() == [lacks]
    assert faults(head=back) == []


AMENDED = {"date": "2026-01-03", "reason": "r", "before": "holds", "after": "not run"}


def test_an_amended_plan_may_have_runs_from_before(faults):
    commit(PLAN | {"looks": 2, "amendments": [AMENDED]})
    assert faults() == []


def test_a_silent_change_after_an_amendment_is_a_fault(faults):
    amended = PLAN | {"looks": 2, "amendments": [AMENDED]}
    commit(amended)
    commit(amended | {"looks": 3})
    (fault,) = faults()
    assert fault.endswith("without an amendment")


def test_a_digest_that_a_plan_never_had_is_a_fault(faults):
    never = PLAN | {"looks": 3}
    (other,) = plans_in(yaml.safe_dump([never]))
    assert faults(never) == [f": runs carry the digest {other.digest}, which it never had"]


def published(*rows):
    """Publish verdicts, each the id of a claim and its status."""
    table = Path("results/published/made_up/tables/made_up_claims.csv")
    table.parent.mkdir(parents=True)
    lines = [",".join(row) for row in rows]
    table.write_text("\n".join(["id,status", *lines, ""]))


def test_a_confirmed_claim_needs_all_planned_seeds(faults):
    published(("c01", "confirmed"), ("c02", "confirmed"))
    lacks = ": . lacks seeds 11, 12, 13, 14, 15, but it is published as having confirmed c01"
    assert faults() == [lacks]


def test_a_confirmed_claim_needs_runs_of_the_plan(faults, planned):
    published(("c01", "confirmed"))
    changed = PLAN | {"looks": 2, "amendments": [AMENDED]}
    commit(changed)
    assert faults() == [": no run carries its digest, but it is published as having confirmed c01"]


def test_an_exploratory_claim_needs_none(faults):
    published(("c01", "exploratory"))
    assert faults() == []


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, True),
        ({"seeds": [15, 20]}, True),
        ({"seeds": [16, 21]}, False),
        ({"looks": 2}, False),
    ],
    ids=["nothing new", "one old seed", "new seeds", "more looks"],
)
@pytest.mark.parametrize("status", ["confirmed", "exploratory"])
def test_a_plan_that_changes_after_its_verdict_needs_new_seeds_or_more_looks(
    faults, change, refused, status
):
    """Also if the report was deleted before the plan was changed."""
    published(("c01", status))
    commit()
    shutil.rmtree("results/published")
    commit()
    changed = PLAN | change | {"amendments": [AMENDED]}
    later = commit(changed)
    last = changed["seeds"][0]
    keeps = (
        f": {later[:8]} changed it after its verdicts were published, and keeps seeds "
        f"{last} to 15; take new seeds, or raise looks above 1"
    )
    expected = [keeps] if refused and status == "confirmed" else []
    assert faults(changed, head=later, seed=last) == expected


@pytest.mark.parametrize("head", ["0" * 40, None])
def test_a_run_of_a_commit_without_the_plan_is_a_fault(faults, head):
    assert faults(head=head) == [f": run comes from {str(head)[:8]}, which lacks the plan"]


# right and wrong texts of the paper's file, and the place of the fault; none if it decides nothing
CHANGES = """
- ['field: accuracy_mean', 'field: accuracy_std', metrics avg]
- ['direction: higher', 'direction: lower', metrics avg]
- ['mu: algo.mu}}', 'mu: algo.mu}, set: {algo.a: 1}}', methods new]
- ['made_up/two', 'made_up/one', setups, "t1 row two new {'mu': 1}", f2 runs, f2 setups]
- ['id: f1, setups: [one, two]', 'id: f1, setups: [one]', f1 setups]
- ['round: best', 'round: last', t1 round]
- - '{mu: 1}, values: {avg: 50}}'
  - '{mu: 2}, values: {avg: 50}}'
  - "t1 row one new {'mu': 1}"
  - "t1 row one new {'mu': 2}"
- ['runs: [{algo: new}]', 'runs: []', f1 runs]
- ['local.lr: 0.1', 'local.lr: 0.2', variant slow]
- ['runs: []', 'runs: [{algo: new}]']
- ['two, algo: new, hyperparameters: {mu: 1}', 'two, algo: new, hyperparameters: {}']
- ['local.lr: 1}', 'local.lr: 2}']
- ['why: Sec. 2', 'why: Sec. 4']
- ['label: average %', 'label: mean %']
- ['It is new.', 'It is better.']
- ['values: {avg: 50}', 'values: {avg: 51}']
- ["metrics: [", "metrics: [{id: other, label: o, direction: higher, field: loss}, "]
- ["methods: [", "methods: [{id: other, label: o, algo: other}, "]
"""


@pytest.mark.parametrize("change", yaml.safe_load(CHANGES), ids=lambda change: change[1])
def test_what_decides_rows_and_numbers_must_not_change(faults, planned, change):
    """The file as it is counts, committed or not."""
    right, wrong, *places = change
    assert right in PAPER
    PAPER_FILE.write_text(PAPER.replace(right, wrong, 1))
    changed = f"of {PAPER_FILE} has changed since the plan ({planned[:8]})"
    assert sorted(faults()) == sorted(f": {place} {changed}" for place in places)


MODULE = """
_BOUND = 5.0

def _helper(x):
    return x > _BOUND

def c07_is_large(x):
    'Text.'
    return _helper(x)

def c08_is_other(x):
    return -x
"""


@pytest.mark.parametrize(
    ("right", "wrong", "same"),
    [
        ("Text.", "Other text.", True),
        ("-x", "x", True),  # of a function that is not planned
        ("5.0", "6.0", False),
        ("x > ", "x < ", False),
        ("return _helper(x)", "return not _helper(x)", False),
    ],
)
def test_functions_of_planned_claims_and_what_they_use_must_not_change(right, wrong, same):
    used = check_plans.code_used(MODULE, ["c07"])
    assert used.keys() == {"c07_is_large", "_helper", "_BOUND"}
    assert (check_plans.code_used(MODULE.replace(right, wrong), ["c07"]) == used) is same
