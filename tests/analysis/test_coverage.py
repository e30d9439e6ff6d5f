"""Coverage of printed numbers: counted once, by setting; and the splits of the data."""

from dataclasses import replace

import pytest
from fake_runs import fake_row

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.matching import Evidence
from fedbench.analysis.table_model import coverage
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
    fake_row(tmp_path, PAPER, SYNTHETIC[0])
    fake_row(tmp_path, PAPER, SYNTHETIC[1], cut={"rounds": [1000, 20]})
    found = coverage([table(tmp_path, "table7")])
    assert found.full == 3
    assert found.reduced == 3
    assert found.not_run == 39
    assert found.measured == 6
    assert found.agreement.total() == 6
    assert set(found.agreement) <= {"inside", "outside"}


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
