"""The script that judges claims again from runs.parquet, on runs that were made up."""

import csv
import sys

import pytest
from fake_runs import fake_row
from tools import ROOT

from fedbench.papers.registry import papers
from fedbench.reports.write import write_report

sys.path.insert(0, str(ROOT / "scripts"))
import recompute_verdicts as script


@pytest.fixture(scope="module", autouse=True)
def readings():
    """All of them."""


def test_p_values_by_hand():
    """Of the eight sums of ±1 ± 2 ± 4, the odd numbers from -7 to 7, five are at least 1+2-4."""
    assert script.p_ahead({0: 1.0, 1: 2.0, 2: -4.0}) == 5 / 8
    # a difference of 0 counts for neither side
    assert script.p_ahead({0: 1.0, 1: 1.0, 2: 0.0}) == 2 / 8


def test_the_step_down_by_hand():
    """Two comparisons ahead in all of five seeds alike are one: 1 / 32 each; one behind everywhere
    is not ahead.
    """
    ahead = dict.fromkeys(range(5), 1.0)
    behind = dict.fromkeys(range(5), -2.0)
    assert script.adjusted([ahead, ahead]) == [1 / 32, 1 / 32]
    _, p = script.adjusted([ahead, behind])
    assert p == 1.0
    # of two seeds, ranks 1 and 1: the assignments with either at its lowest are both ends, 2 of 4
    twice = {0: 1.0, 1: 1.0}
    p, _ = script.adjusted([twice, {0: 1.0, 1: -1.0}])
    assert p == 1 / 2


def six_seeds(lead):
    return script.Compared(dict.fromkeys(range(6), lead))


AHEAD = six_seeds(1.0)
BEHIND = six_seeds(-1.0)
LEVEL = six_seeds(0.0)
NOT_RUN = script.Compared({})
UNTUNED = AHEAD._replace(untuned=True)


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
    ],
)
def test_verdicts_by_hand(every, word, counts, check):
    found = script.verdict(every)
    assert found.word == word
    assert found.counts == counts
    assert script.scaled(every) == ""
    cut = [c._replace(reduced=bool(c.leads)) for c in every]
    assert script.verdict(cut).word == "not run"
    assert script.scaled(cut) == check


def falsify(path, claim):
    """Write another verdict of a claim into a table of readings."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["claim"] == claim and row["adopted"] == "True":
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
    falsify(report / "tables" / f"{name}_readings.csv", claim)
    assert script.main([str(report), "--least", str(least)]) == 1
    printed = capsys.readouterr().out
    assert f"{name} {claim}, as in the tables, one split: recomputed" in printed
    assert ", 1 differ\n" in printed  # all others are confirmed
