"""The script that judges claims again from runs.parquet, on runs that were made up."""

import csv
import math
import shutil
import sys
from dataclasses import replace

import pytest
import yaml
from fake_runs import change_facts, change_last_round, fake_row
from tools import ROOT

from fedbench.config.plans import plans_of
from fedbench.papers.registry import papers, written_checks
from fedbench.reports.write import write_report

sys.path.insert(0, str(ROOT / "scripts"))
import recompute_verdicts as script


@pytest.fixture(scope="module", autouse=True)
def readings():
    """All of them."""


def test_p_values_by_hand():
    """Of the eight sums of ±1 ± 2 ± 4, the odd numbers from -7 to 7, five are at least 1+2-4."""
    c = script.Compared({0: 1.0, 1: 2.0, 2: -4.0})
    assert script.p_value(c) == 5 / 8
    assert script.p_value(c, direction=-1) == 4 / 8
    # a difference of 0 counts for neither side
    c = script.Compared({0: 1.0, 1: 1.0, 2: 0.0})
    assert script.p_value(c) == 2 / 8


def test_the_step_down_by_hand():
    """Two comparisons ahead in all of five seeds alike are one: 1 / 32 each; one behind everywhere
    is not ahead.
    """
    ahead = script.Compared(dict.fromkeys(range(5), 1.0))
    behind = script.Compared(dict.fromkeys(range(5), -2.0))
    assert script.adjusted([ahead, ahead]) == [1 / 32, 1 / 32]
    _, p = script.adjusted([ahead, behind])
    assert p == 1.0
    # of two seeds, ranks 1 and 1: the assignments with either at its lowest are both ends, 2 of 4
    twice = script.Compared({0: 1.0, 1: 1.0})
    once = script.Compared({0: 1.0, 1: -1.0})
    p, _ = script.adjusted([twice, once])
    assert p == 1 / 2


def test_numbers_by_hand():
    assert script.rank_correlation([1.0, 3.0, 2.0, 4.0]) == (5 - 1) / 6
    assert script.rank_correlation([1.0, 1.0, 2.0]) == 2 / 3
    assert math.isclose(script.student(1), 12.7062, rel_tol=1e-5)
    assert math.isclose(script.student(9), 2.26216, rel_tol=1e-5)


def six_seeds(lead):
    return script.Compared(dict.fromkeys(range(6), lead))


AHEAD = six_seeds(1.0)
BEHIND = six_seeds(-1.0)
LEVEL = six_seeds(0.0)
NOT_RUN = script.Compared({})
UNTUNED = replace(AHEAD, untuned=True)
BOTH = script.Compared(parts=(AHEAD, BEHIND))  # needed, such as the ends of a band
EITHER = replace(BOTH, every=False)


@pytest.mark.parametrize(
    ("every", "word", "counts", "check"),
    [
        ([NOT_RUN, NOT_RUN], "not run", "2 comparisons, none run", ""),
        ([AHEAD, AHEAD], "holds", "2 of 2 shown, 0 refuted", "same direction"),
        ([BEHIND, LEVEL], "fails", "0 of 2 shown, 1 refuted", "opposite direction"),
        ([AHEAD, BEHIND], "mixed", "1 of 2 shown, 1 refuted", "mixed"),
        ([AHEAD, LEVEL], "undecided", "1 of 2 shown, 0 refuted", "unclear"),
        ([AHEAD, NOT_RUN], "not run", "1 of 2 run: 1 of 1 shown, 0 refuted", ""),
        # six seeds are not sure to refute one of four
        ([AHEAD] * 4, "holds", "4 of 4 shown, 0 refuted", "unclear"),
        ([UNTUNED], "undecided", "1 of 1 shown, 0 refuted", "unclear"),
        ([BEHIND, NOT_RUN], "cannot hold", "1 of 2 run: 0 of 1 shown, 1 refuted", ""),
        # 1 / 64 for each of four is above 0.05
        ([BEHIND, *[NOT_RUN] * 3], "not run", "1 of 4 run: 0 of 1 shown, 1 refuted", ""),
        ([BOTH], "fails", "0 of 1 shown, 1 refuted", "opposite direction"),
        ([EITHER], "holds", "1 of 1 shown, 0 refuted", "same direction"),
        # three comparisons count as four, since one has two needed parts
        ([BEHIND, LEVEL, LEVEL], "fails", "0 of 3 shown, 1 refuted", "opposite direction"),
        ([BOTH, LEVEL, LEVEL], "fails", "0 of 3 shown, 1 refuted", "unclear"),
    ],
)
def test_verdicts_by_hand(every, word, counts, check):
    found = script.verdict(every)
    assert found.word == word
    assert found.counts == counts
    assert script.scaled(every) == ""
    cut = [replace(c, reduced=c.run) for c in every]
    assert script.verdict(cut).word == "not run"
    assert script.scaled(cut) == check


def falsify(path, claim):
    """Write another verdict of a claim into a table of claims."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["id"] == claim:
            row["verdict"] = "holds" if row["verdict"] == "fails" else "fails"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "claim", "table", "setups", "least"),
    [
        ("adafedadam", "c13", "table7", "synthetic", 5),
        ("fedcada", "c07", "table1", "fmnist_noniid", 4),  # a table of best rounds
    ],
)
def test_a_report_is_confirmed_and_a_wrong_verdict_is_found(
    name, claim, table, setups, least, tmp_path, no_figures, capsys
):
    paper = papers()[name]
    for row in paper.tables[table].rows:
        if setups in row.setup:
            fake_row(
                tmp_path,
                paper,
                row,
                seeds=range(5),
                preset={"data.seed": 0},
            )
    write_report(tmp_path, only=name)
    report = tmp_path / "report"
    falsify(report / "tables" / f"{name}_claims.csv", claim)
    assert script.main([str(report), "--least", str(least)]) == 1
    printed = capsys.readouterr().out
    assert f"{name} {claim}: recomputed" in printed
    assert ", 1 differ\n" in printed  # all others are confirmed


@pytest.mark.slow
def test_diverged_runs_count_as_behind(tmp_path, no_figures, capsys):
    paper = papers()["fedfa"]
    for row in paper.tables["table2"].rows:
        if row.setup.startswith("synthetic"):
            done = 6 if row.algo == "fedfa" else 7
            fake_row(tmp_path, paper, row, seeds=range(done))
            fake_row(tmp_path, paper, row, seeds=range(done, 9), status="diverged")
    write_report(tmp_path, only="fedfa")
    agrees = script.main([str(tmp_path / "report"), "--least", "12"]) == 0
    assert agrees, capsys.readouterr().out


IID = "fedfa/table2_synthetic_iid"


def fake_rows(root, seeds, **accuracy):
    """Runs of all rows of an experiment, with a mean accuracy by algorithm; return the last."""
    paper = papers()["fedfa"]
    made = set()
    for part in (*paper.tables, *paper.figures):
        for row in paper.rows(part):
            key = f"{row.algo} {paper.overrides(row)}"
            if paper.setups[row.setup].experiment != IID or key in made:
                continue
            made.add(key)
            for path in fake_row(root, paper, row, seeds=seeds):
                change_last_round(path, accuracy_mean=accuracy[row.algo])
    return path


def write_plan(root, **more):
    """Write a plan for claim c02 of FedFa with six seeds; return it."""
    check = written_checks("fedfa")["c02"]
    plan = {
        "id": "iid",
        "date": "2026-12-01",
        "experiments": [IID],
        "seeds": [10, 15],
        "claims": {"c02": {"check": check, "margin": "made up"}},
        "adopted": {},
        "search": "none",
        **more,
    }
    folder = root / "plans"
    folder.mkdir(exist_ok=True)
    (folder / "fedfa.yaml").write_text(yaml.safe_dump([plan]))
    (written,) = plans_of(root, "fedfa")
    return written


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "status", "verdict"),
    [
        ("none", "confirmed", "holds"),
        ("four looks", "confirmed", "undecided"),  # 1 / 64 is above 0.05 / 4
        ("a run is missing", "exploratory", "fails"),
        ("an amendment", "exploratory", "undecided"),  # then the planned runs are exploratory, too
        ("another check", "exploratory", "fails"),
    ],
)
def test_a_complete_plan_confirms_a_verdict(change, status, verdict, tmp_path, no_figures, capsys):
    more = {}
    if change == "four looks":
        more["looks"] = 4
    if change == "another check":
        more["claims"] = {"c02": {"check": {"kind": "function"}}}
    plan = write_plan(tmp_path, **more)
    path = fake_rows(tmp_path, plan.every_seed, fedavg=0.52, fedfa=0.5, fedprox=0.4)
    change_facts(tmp_path, plans={plan.id: plan.digest})
    if change == "a run is missing":
        shutil.rmtree(path)
    if change == "an amendment":
        write_plan(tmp_path, search="another one")
    fake_rows(tmp_path, range(5), fedavg=0.3, fedfa=0.5, fedprox=0.6)

    write_report(tmp_path, only="fedfa")
    report = tmp_path / "report"
    agrees = script.main([str(report), "--least", "9"]) == 0
    assert agrees, capsys.readouterr().out
    with (report / "tables" / "fedfa_claims.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert rows["c02"]["status"] == status
    assert rows["c02"]["verdict"] == verdict
    assert rows["c02"]["explored"] == ("fails" if status == "confirmed" else "")
    assert rows["c01"]["status"] == ""  # whose other sets have no runs
