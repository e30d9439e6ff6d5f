"""Coverage of printed numbers: counted once, by setting; and the splits of the data."""

from dataclasses import replace
from statistics import mean

import pytest
from fake_runs import fake_row, measured

from fedbench.analysis.build_tables import paper_table, run_tables
from fedbench.analysis.matching import Evidence
from fedbench.analysis.table_model import coverage
from fedbench.papers.readings import Values
from fedbench.papers.registry import papers
from fedbench.runs.results import Results

PAPER = papers()["adafedadam"]
TABLE7 = PAPER.tables["table7"]
SYNTHETIC = [row for row in TABLE7.rows if row.setup == "synthetic"]


def table(root, name):
    return paper_table(PAPER.tables[name], Evidence(PAPER, Results(root)))


def test_a_number_that_two_tables_print_is_counted_once(tmp_path):
    """Table 4 of AdaFedAdam repeats three rows of three numbers of Table 7, which has 45."""
    four = table(tmp_path, "table4")
    seven = table(tmp_path, "table7")
    assert coverage([four]).total == 9
    assert coverage([seven]).total == 45
    assert coverage([four, four, seven]) == coverage([seven])


def test_another_number_in_the_same_place_is_another_number(tmp_path):
    """Two tables that contradict each other print two numbers."""
    four = table(tmp_path, "table4")
    (block, *blocks) = four.blocks
    (line, *lines) = block.lines
    (cell, *cells) = line.cells
    printed = replace(cell.printed, mean=0.0)
    line = replace(line, cells=(replace(cell, printed=printed), *cells))
    block = replace(block, lines=(line, *lines))
    other = replace(four, blocks=(block, *blocks))
    assert coverage([four, other]).total == 9 + 1


def test_numbers_are_measured_in_full_reduced_or_not(tmp_path):
    """Only numbers measured in full are compared with the paper's."""
    fake_row(tmp_path, PAPER, SYNTHETIC[0])
    fake_row(tmp_path, PAPER, SYNTHETIC[1], cut={"rounds": [1000, 20]})
    found = coverage([table(tmp_path, "table7")])
    assert (found.as_printed, found.retuned, found.reduced, found.not_run) == (3, 0, 3, 39)
    assert (found.full, found.measured) == (3, 6)
    assert found.agreement.total() == 3
    assert set(found.agreement) <= {"inside", "outside"}


def test_numbers_of_searched_rows_are_retuned(tmp_path):
    """Two rows of three numbers: that of FedAvg is as printed, and that of FedAdam searched."""
    values = {"v": Values("v", "searched", (SYNTHETIC[1].algo,), "six rates")}
    searched = replace(PAPER, values=values)
    for row in SYNTHETIC[:2]:
        fake_row(tmp_path, PAPER, row)
    evidence = Evidence(searched, Results(tmp_path))
    found = coverage([paper_table(TABLE7, evidence)])
    assert (found.as_printed, found.retuned, found.full) == (3, 3, 6)
    assert (found + found).retuned == 6
    assert found.agreement.total() == 6


def test_a_number_of_a_paper_has_a_value_for_each_split(tmp_path):
    """Seeds 0 to 2 share data seed 0, and their mean is one value; in other tables each seed is
    one.
    """
    row = SYNTHETIC[0]
    fake_row(tmp_path, PAPER, row, preset={"data.seed": 0})
    (line, *_) = [line for line in table(tmp_path, "table7").lines if line.row is row]
    place = (PAPER.setups["synthetic"].experiment, row.algo, PAPER.overrides(row))
    field = "accuracy_mean_weighted"
    by_seed = [100 * measured(*place, seed, field) for seed in range(3)]
    assert line.cells[0].values == (pytest.approx(mean(by_seed)),)
    (own,) = run_tables(list(Results(tmp_path)))
    (cell,) = [c for c, n in zip(own.lines[0].cells, own.columns, strict=True) if n.name == field]
    assert cell.values == pytest.approx(tuple(by_seed))


@pytest.mark.parametrize(
    ("seed", "splits"),
    [
        (None, ["null"]),
        (0, ["0"]),
    ],
)
def test_a_setup_has_the_splits_of_its_runs(tmp_path, seed, splits):
    fake_row(tmp_path, PAPER, SYNTHETIC[0], preset={"data.seed": seed})
    first, *others = table(tmp_path, "table7").blocks
    assert first.splits == splits
    assert not any(block.splits for block in others)
