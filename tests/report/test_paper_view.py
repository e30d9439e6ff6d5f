"""A paper's numbers next to ours: verdicts by hand, and commands that lead to the same runs."""

import json
import math
import shlex
from dataclasses import asdict
from types import SimpleNamespace

import pytest
import yaml
from fake_runs import edit, facts_of, write_run
from hypothesis import given
from hypothesis import strategies as st
from tools import ROOT

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.table_model import Cell, Column, Line, RowGroup
from fedbench.config.compose import Composer, compose_run
from fedbench.core.config_values import leaves
from fedbench.papers.registry import papers
from fedbench.papers.schema import Reported, Setup
from fedbench.reports.page import run_links
from fedbench.reports.table_pages import (
    basis_text,
    command_text,
    difference_text,
    main_columns,
    measured_text,
    notes_of,
    printed_text,
    row_note,
)
from fedbench.runs.results import Results

# the t quantile of 2 degrees of freedom is (2p - 1) / √(2p(1 - p)); 1, 2, 3 have mean 2 and STD 1
QUANTILE = 0.95 / math.sqrt(2 * 0.975 * 0.025)  # 4.302653
HALF = QUANTILE / math.sqrt(3)  # 2.484138, of the interval of the mean
WIDE = QUANTILE * math.sqrt(1 + 1 / 3)  # 4.968275, of the prediction interval
COLUMN = Column(papers()["fedfa"].metrics["avg"], printed=True)


# ---- a printed number next to the measured one


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("std", [None, 0.1])
@pytest.mark.parametrize(
    ("distance", "word"),
    [
        (0.0, "inside"),
        (HALF + 1e-6, "inside"),
        (WIDE - 1e-6, "inside"),
        (WIDE + 1e-6, "outside"),
    ],
)
def test_the_prediction_interval_of_another_run(sign, distance, std, word):
    """Whatever ± the paper prints."""
    cell = Cell((3.0, 1.0, 2.0), Reported(2 + sign * distance, std))
    note = basis_text(cell, COLUMN)
    assert cell.prediction == pytest.approx((2 - WIDE, 2 + WIDE))
    assert cell.agreement == word
    assert note.startswith("n = 3, 95 % interval of the mean -0.48")
    assert ", 95 % prediction interval of another run -2.9" in note
    assert note.endswith(f"lies {word}")


def test_one_split_has_no_interval():
    cell = Cell((1.0,), Reported(1.0, 0.5))
    assert cell.prediction is None
    assert cell.agreement == "single"
    assert basis_text(cell, COLUMN) == "one split gives no interval"


def test_equal_values_agree_with_themselves_alone():
    assert Cell((100.0,) * 3, Reported(100.0, None)).agreement == "inside"
    assert Cell((100.0,) * 3, Reported(99.99, None)).agreement == "outside"


NUMBERS = st.integers(-100, 100)


@given(st.lists(NUMBERS, min_size=2, max_size=6), NUMBERS, NUMBERS)
def test_the_verdict_does_not_depend_on_zero_or_on_order(values, printed, shift):
    verdict = Cell(tuple(values), Reported(printed + 0.5, 0.25)).agreement
    moved = tuple(value + shift for value in reversed(values))
    assert Cell(moved, Reported(printed + 0.5 + shift, 0.25)).agreement == verdict
    mirrored = tuple(-value for value in values)
    assert Cell(mirrored, Reported(-printed - 0.5, 0.25)).agreement == verdict


# ---- runs as fedbench would leave them


def leave_runs(
    root,
    experiment,
    algo,
    *overrides,
    seeds=(0, 1, 2),
    rounds=None,
    **facts,
):
    """Leave runs without training: with the accuracies of the last round by seed, or all rounds."""
    typed = [f"experiment={experiment}", f"algo={algo}", *overrides, f"results_dir={root}"]
    config = Composer().config(typed)
    for place, seed in enumerate(seeds):
        meta = facts_of(
            seed=seed,
            hash=config.digest,
            departures=config.departures,
            overrides=typed,
            **asdict(config.names),
            **facts,
        )
        path = config.path.parent / f"seed_{seed}"
        last = {
            "round": 9,
            "accuracy_mean": 0.5,
            **(rounds[place] if rounds else {}),
        }
        clients = {"round": [9], "client": [0], "accuracy": [0.5]}
        write_run(
            path,
            meta,
            leaves(config.tree) | {"seed": seed},
            [last],
            clients,
        )
    return config


def shown_table(root, paper, table):
    source = papers()[paper]
    return paper_table(source.tables[table], Evidence(source, Results(root)))


def row_of(root, paper, table, setup, place=0):
    """The row of a setup at this place, with the cells as the page shows them."""
    data = shown_table(root, paper, table)
    (block,) = [block for block in data.blocks if block.setup.id == setup]
    line = block.lines[place]
    cells = []
    for i in main_columns(data):
        cell = line.cells[i]
        column = data.columns[i]
        measured = measured_text(cell, column)
        printed = printed_text(cell, column)
        texts = (measured, printed, difference_text(cell, column))
        note = basis_text(cell, column)
        cells.append(SimpleNamespace(texts=texts, verdict=cell.agreement, note=note))
    return SimpleNamespace(line=line, block=block, cells=cells, note=row_note(line))


# ---- cells


def test_cells_beside_the_papers_numbers(tmp_path):
    """FedFa, Table 2, synthetic IID: FedAvg has 89.11, 78.17, 100.00 and a variance of 68.04."""
    rounds = [
        {"accuracy_mean": 0.89 + d, "accuracy_worst20": 0.7 + d, "accuracy_best20": 1.0}
        for d in (-0.01, 0.0, 0.01)
    ]
    leave_runs(tmp_path, "fedfa/table2_synthetic_iid", "fedavg", rounds=rounds)
    row = row_of(tmp_path, "fedfa", "table2", "synthetic_iid")
    assert (row.line.label, row.line.keys) == ("FedAvg", {})
    assert (
        row.line.status,
        row.line.matched.reduced,
    ) == ("full", ())
    assert [cell.texts for cell in row.cells] == [
        ("89.00 ± 1.00", "89.11", "-0.11"),
        ("70.00 ± 1.00", "78.17", "-8.17"),
        ("100.00 ± 0.00", "100.00", "+0.00"),
        ("", "68.04", ""),
    ]
    assert [cell.verdict for cell in row.cells] == ["inside", "outside", "inside", "missing"]
    interval, wider = (f"{89 - half:.2f} to {89 + half:.2f}" for half in (HALF, WIDE))
    assert row.cells[0].note == (
        f"n = 3, 95 % interval of the mean {interval}, "
        f"95 % prediction interval of another run {wider}: 89.11 lies inside"
    )


def leave_curve(root, experiment, *overrides):
    """Leave a run of FedCAda whose best round is not the last."""
    config = leave_runs(root, experiment, "fedcada", *overrides, seeds=[0])
    (file,) = config.path.parent.glob("seed_0/rounds.jsonl")
    best = json.dumps({"round": 0, "accuracy_mean": 0.7})
    edit(file, lambda text: f"{best}\n{text}")


def test_the_best_round_where_the_paper_prints_it(tmp_path):
    """FedCAda, Table 1; one of its numbers has three decimals, 66.508."""
    leave_curve(tmp_path, "fedcada/table1_device_cifar10_iid")
    notes = notes_of(shown_table(tmp_path, "fedcada", "table1"))
    assert any(note.startswith("best round of each run") for note in notes)
    cell = row_of(tmp_path, "fedcada", "table1", "device_cifar10_iid", 5).cells[0]
    assert cell.texts == ("70.000", "66.508", "+3.492")


def test_a_row_without_a_printed_number(tmp_path):
    """FedCAda's other reading of Adam."""
    row = ("fedcada", "table3", "silo_cifar10_noniid", 1)
    assert row_of(tmp_path, *row).cells[0].verdict == "missing"
    leave_curve(tmp_path, "fedcada/table1_silo_cifar10_noniid", "algo.adjust=adam")
    cell = row_of(tmp_path, *row).cells[0]
    assert cell.texts == ("70.00", "", "")
    assert (cell.verdict, cell.note) == ("none", "n = 1")


def test_impossible_numbers_are_marked_with_the_reason_in_the_columns_concerned(tmp_path):
    """AdaFed, Table 1, setup 1: the STD of FedAvg is 3.54, and its tails need 7.8."""
    reason = (
        "No accuracies of unweighted clients have the printed numbers of this row: "
        "these averages need a deviation of at least 7.8"
    )
    row = ("adafed", "table1", "cifar10_s1")
    rounds = [{"accuracy_mean": 0.4 + d, "accuracy_std": d} for d in (0.06, 0.07, 0.08)]
    leave_runs(tmp_path, "adafed/table1_cifar10_s1", "fedavg", rounds=rounds)
    average, std, *_, absent = row_of(tmp_path, *row).cells[:5]
    assert average.texts == ("47.00 ± 1.00", "46.85", "+0.15")
    assert average.verdict == "inside"
    assert "accuracies of unweighted clients" not in average.note
    assert std.texts == ("7.00 ± 1.00", "3.54", "+3.46")
    assert std.verdict == "impossible"
    assert std.note.endswith(reason)
    # setup 1 has no worst 10 %
    assert (absent.texts, absent.verdict, absent.note) == (("", "", ""), "missing", "")


def test_weighted_numbers_are_compared_where_unweighted_ones_are_impossible(tmp_path):
    """AdaFedAdam, Table 5: with equal weights, 115.1 % would be left to the other clients."""
    row = row_of(tmp_path, "adafedadam", "table5", "synthetic")
    assert [cell.verdict for cell in row.cells] == ["missing"] * 3
    assert "the 70 clients outside the tails would average 115.1 %" in row.note
    assert "compared with weighted ones" in row.note
    possible = row_of(tmp_path, "adafedadam", "table7", "synthetic_nesterov", 4)
    assert possible.note == ""


# ---- runs that ended otherwise

FEMNIST = ("fedfa", "table2", "femnist")


def test_a_row_without_finished_runs_was_not_run(tmp_path):
    leave_runs(tmp_path, "fedfa/table2_femnist", "fedavg", status="running", seeds=[0])
    row = row_of(tmp_path, *FEMNIST)
    assert row.line.status == "not run"
    empty = row_of(tmp_path / "empty", *FEMNIST)
    assert (empty.line.status, empty.note) == ("not run", "")
    assert run_links(empty.line, tmp_path) == {}


# ---- the command of a row


def test_the_command_of_a_row_that_was_not_run():
    keys = {
        "algo.gamma": 5.0,
        "local.batch_size": "full",
        "local.epochs": [1, 5],
        "algo.clip": None,
        "algo.on": True,
    }
    row = papers()["adafed"].tables["table1"].rows[0]
    line = Line(
        "adafed",
        "AdaFed",
        {},
        MatchedRuns({}),
        (),
        row,
        keys,
    )
    setup = Setup("s", "One", "a/b", 2, 3, 5)
    assert command_text(line, RowGroup(setup, ())) == (
        "fedbench -m experiment=a/b algo=adafed algo.gamma=5 local.batch_size=full "
        "'local.epochs=[1,5]' algo.clip=null algo.on=true seed=0,1,2"
    )


# table and setup, place of the row, and overrides
ROWS = """
- [adafedadam table5 synthetic, 0, rounds=7 participation=0.5]
- [adafedadam table5 cifar10_dir005, 4, "model=mlp_200_200 model.hidden=[64,32]"]
- [adafedadam table5 sent140, 1, rounds=2 model.layers=1 model.hidden=4 local.steps=2]
- [adafedadam table2 cifar10_hetero, 0, "local.epochs=[1,3] eval_every=1 keep_clients=[0,5]"]
- [adafed table1 cifar10_s1, 0, improved_clients=false engine.precision=float64]
- [adafed table19 clothing1m, 3, rounds=5 algo.server.gamma=5 model=linear]
"""


@pytest.mark.parametrize(("block", "place", "overrides"), yaml.safe_load(ROWS))
def test_the_command_leads_to_the_same_runs(tmp_path, block, place, overrides):
    """The printed command has the identity and seeds of the runs, however these were started."""
    paper, table, setup = block.split()
    source = papers()[paper]
    rows = [row for row in source.tables[table].rows if row.setup == setup]
    experiment = source.setups[setup].experiment
    algo = source.methods[rows[place].algo].algo
    config = leave_runs(
        tmp_path,
        experiment,
        algo,
        *overrides.split(),
        seeds=[2, 5],
    )
    row = row_of(tmp_path, paper, table, setup, place)
    assert len(row.line.matched.runs) == 2
    first, flag, *words, seeds = shlex.split(
        command_text(
            row.line,
            row.block,
        )
    )
    assert (first, flag, seeds) == ("fedbench", "-m", "seed=2,5")
    again = compose_run([*words, "seed=2", f"results_dir={tmp_path}"])
    assert again.digest == config.digest
    assert again.path == config.path.parent / "seed_2"


def test_the_gaps_of_a_table_are_named_by_their_subject():
    """The heading is that of the page."""
    paper = papers()["fafed"]
    table = paper.tables["table_s1"]
    notes = notes_of(paper_table(table, Evidence(paper, [])))
    heading = "What the paper does not state"
    (note,) = [note for note in notes if heading in note]
    fields = [f"{gap.field} ({id})" for id, gap in paper.gaps.items()]
    concerned = [text for text in fields if text in note]
    ids = {id for setup in table.setups for id in paper.setups[setup].gaps}
    assert note.endswith(f": {', '.join(concerned)}")
    assert len(concerned) == len(ids)
    page = (ROOT / "fedbench" / "reports" / "assets" / "page.html").read_text()
    assert f'"{heading}"' in page
