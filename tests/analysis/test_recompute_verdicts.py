"""The script that judges claims again from runs.parquet, on runs that were made up."""

import csv
import sys
from itertools import product

import pytest
from fake_runs import fake_row
from tools import ROOT

from fedbench.papers.registry import papers
from fedbench.reports.write import write_report

sys.path.insert(0, str(ROOT / "scripts"))
import recompute_verdicts as script


def test_p_values_by_hand():
    """Of the eight assignments to 1, 2, -4, the sums are at least -1 in -1, 1, 3, 3 + ... : counted below."""
    sums = sorted(a * 1 + b * 2 + c * 4 for a, b, c in product((1, -1), repeat=3))
    assert sums == [-7, -5, -3, -1, 1, 3, 5, 7]
    assert script.p_ahead({0: 1.0, 1: 2.0, 2: -4.0}) == 5 / 8
    # a difference of 0 counts for neither side
    assert script.p_ahead({0: 1.0, 1: 1.0, 2: 0.0}) == 2 / 8


def test_the_step_down_by_hand():
    """Two comparisons ahead in all of five seeds alike are one: 1 / 32 each; one behind everywhere is not ahead."""
    ahead, behind = dict.fromkeys(range(5), 1.0), dict.fromkeys(range(5), -2.0)
    assert script.adjusted([ahead]) == [1 / 32]
    assert script.adjusted([ahead, ahead]) == [1 / 32, 1 / 32]
    assert script.adjusted([ahead, behind])[1] == 1.0
    # of two seeds, ranks 1 and 1: the assignments with either at its lowest are both ends, 2 of 4
    assert script.adjusted([{0: 1.0, 1: 1.0}, {0: 1.0, 1: -1.0}])[0] == 1 / 2


AHEAD, BEHIND, LEVEL = (script.Compared(dict.fromkeys(range(6), lead)) for lead in (1.0, -1.0, 0.0))


@pytest.mark.parametrize(
    ("every", "word", "counts", "check"),
    [
        ([script.Compared({})] * 2, "not run", "2 comparisons, none run", ""),
        ([AHEAD, AHEAD], "holds", "2 of 2 shown, 0 refuted", "same direction"),
        ([BEHIND, LEVEL], "fails", "0 of 2 shown, 1 refuted", "opposite direction"),
        ([AHEAD, BEHIND], "mixed", "1 of 2 shown, 1 refuted", "mixed"),
        ([AHEAD, LEVEL], "undecided", "1 of 2 shown, 0 refuted", "unclear"),
        ([AHEAD, script.Compared({})], "not run", "1 of 2 run: 1 of 1 shown, 0 refuted", ""),
        # six seeds are not sure to refute one of four
        ([AHEAD] * 4, "holds", "4 of 4 shown, 0 refuted", "unclear"),
        ([AHEAD._replace(untuned=True)], "undecided", "1 of 1 shown, 0 refuted", "unclear"),
    ],
)
def test_verdicts_by_hand(every, word, counts, check):
    found = script.verdict(every)
    assert (found.word, found.counts, script.scaled(every)) == (word, counts, "")
    cut = [c._replace(reduced=bool(c.leads)) for c in every]
    assert (script.verdict(cut).word, script.scaled(cut)) == ("not run", check)


@pytest.mark.parametrize(("name", "claim", "table", "setups", "least"), [
    pytest.param("adafedadam", "c13", "table7", "synthetic", 5, marks=pytest.mark.slow),
    ("fedcada", "c07", "table1", "fmnist_noniid", 4),  # a table of best rounds
])  # fmt: skip
def test_a_report_is_confirmed_and_a_wrong_verdict_is_found(
    name, claim, table, setups, least, tmp_path, no_figures, capsys
):
    paper = papers()[name]
    for row in (r for r in paper.tables[table].rows if setups in r.setup):
        fake_row(tmp_path / "runs", paper, row, seeds=range(5), preset={"data.seed": 0})
    write_report(tmp_path / "runs", only=name)
    folder = tmp_path / "runs" / "report"
    path = folder / "tables" / f"{name}_readings.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    (row,) = (r for r in rows if r["claim"] == claim and r["adopted"] == "True")
    row["verdict"] = {"fails": "holds"}.get(row["verdict"], "fails")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert script.main([str(folder), "--least", str(least)]) == 1
    said = capsys.readouterr().out
    assert f"{name} {claim}, as in the tables, one split: recomputed" in said
    assert ", 1 differ\n" in said  # all others are confirmed
