"""Coverage of printed numbers: counted once, by setting; and the splits of the data."""

import json
from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest
from fake_runs import fake_row, seal

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.matching import Evidence
from fedbench.analysis.table_model import Coverage, coverage
from fedbench.papers.registry import papers
from fedbench.runs.results import Results


def tables(root, paper, *names):
    p = papers()[paper]
    evidence = Evidence(p, Results(root))
    return [paper_table(p.tables[name], evidence) for name in names]


def test_a_number_that_two_tables_print_is_counted_once(tmp_path):
    """Table 4 of AdaFedAdam repeats three rows of three numbers of Table 7, which has 45."""
    four, seven = tables(tmp_path, "adafedadam", "table4", "table7")
    assert coverage([four]).total == 9
    assert coverage([seven]).total == 45
    assert coverage([four, seven]).total == 45
    assert coverage([four, four, seven]) == coverage([four, seven])


def test_numbers_are_measured_in_full_reduced_or_not(tmp_path):
    p = papers()["adafedadam"]
    rows = [r for r in p.tables["table7"].rows if r.setup == "synthetic"]
    fake_row(tmp_path, p, rows[0])
    fake_row(tmp_path, p, rows[1], cut={"rounds": [1000, 20]})
    (seven,) = tables(tmp_path, "adafedadam", "table7")
    found = coverage([seven])
    assert (found.full, found.reduced, found.not_run) == (3, 3, 39)
    assert (found.measured, found.total) == (6, 45)
    assert found.agreement.total() == 6
    assert set(found.agreement) <= {"inside", "outside"}


def without_the_end(path):
    """Take the accuracies of the last round from a run, and those of the first client."""
    *lines, last = (json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines())
    last = {k: None if k.startswith("accuracy") else v for k, v in last.items()}
    (path / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (*lines, last)))
    clients = pd.read_parquet(path / "clients.parquet")
    clients.loc[clients["client"] == 0, "accuracy"] = None
    clients.to_parquet(path / "clients.parquet", index=False)
    seal(path)


def test_another_number_in_the_same_place_is_another_number(tmp_path):
    """Two tables that contradict each other print two numbers."""
    (four,) = tables(tmp_path, "adafedadam", "table4")
    block = four.blocks[0]
    line = block.lines[0]
    cell = replace(line.cells[0], printed=replace(line.cells[0].printed, mean=0.0))
    other = replace(
        four, blocks=(replace(block, lines=(replace(line, cells=(cell, *line.cells[1:])),)),)
    )
    assert coverage([four, other]).total == coverage([four]).total + 1


def test_coverages_add_up():
    one, two = (
        Coverage(1, 2, 3, Counter(inside=3)),
        Coverage(10, 20, 30, Counter(inside=1, outside=29)),
    )
    assert one + two == Coverage(11, 22, 33, Counter(inside=4, outside=29))
    assert Coverage().total == 0


@pytest.mark.parametrize(("seed", "splits"), [(None, ["null"]), (0, ["0"])])
def test_a_setup_has_the_splits_of_its_runs(tmp_path, seed, splits):
    p = papers()["adafedadam"]
    row = next(r for r in p.tables["table7"].rows if r.setup == "synthetic")
    fake_row(tmp_path, p, row, preset={"data.seed": seed})
    (seven,) = tables(tmp_path, "adafedadam", "table7")
    first, *others = seven.blocks
    assert first.splits == splits
    assert [block.splits for block in others] == [[]] * len(others)
