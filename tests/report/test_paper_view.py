"""A paper's tables next to its numbers: verdicts computed by hand, and commands that reproduce the same runs."""

import json
import math
import shlex
from dataclasses import asdict
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from fake_runs import seal
from hypothesis import given
from hypothesis import strategies as st

from fedbench.analysis.build_tables import paper_table
from fedbench.analysis.matching import Evidence, MatchedRuns
from fedbench.analysis.table_model import Cell, Column, Line, RowGroup
from fedbench.config.compose import Composer, compose_run
from fedbench.core.config_values import keys_text
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
)  # fmt: skip
from fedbench.runs.results import Results

# the t quantile of 2 degrees of freedom is (2p - 1) / √(2p(1 - p)); 1, 2, 3 have mean 2 and STD 1
HALF = 0.95 / math.sqrt(2 * 0.975 * 0.025) / math.sqrt(3)  # 2.484138

COLUMN = Column(papers()["fedfa"].metrics["avg"], printed=True)


# ---- a printed number next to the measured one


@pytest.mark.parametrize(
    ("mean", "std", "word"),
    [
        (2.0, None, "inside"),
        (2 + HALF - 1e-6, None, "inside"),
        (2 + HALF + 1e-6, None, "outside"),
        (2 - HALF + 1e-6, None, "inside"),
        (2 - HALF - 1e-6, None, "outside"),
        (2 + HALF + 0.1 - 1e-6, 0.1, "inside"),
        (2 + HALF + 0.1 + 1e-6, 0.1, "outside"),
        (2 - HALF - 0.1 + 1e-6, 0.1, "inside"),
        (2 - HALF - 0.1 - 1e-6, 0.1, "outside"),
        (2 + HALF + 1e-6, 0.0, "outside"),
    ],
)
def test_the_interval_of_the_mean_widened_by_the_spread(mean, std, word):
    cell = Cell((3.0, 1.0, 2.0), Reported(mean, std))
    note = basis_text(cell, COLUMN)
    assert cell.agreement == word
    assert note.startswith("n = 3, 95 % interval of the mean -0.48")
    assert note.endswith(f"lies {word}")
    assert ("widened by the paper's 0.10" in note) == (std == 0.1)


def test_one_seed_has_no_interval():
    cell = Cell((1.0,), Reported(1.0, 0.5))
    assert (cell.agreement, basis_text(cell, COLUMN)) == ("single", "one seed gives no interval")


def test_equal_values_agree_with_themselves_alone():
    assert Cell((100.0,) * 3, Reported(100.0, None)).agreement == "inside"
    assert Cell((100.0,) * 3, Reported(99.99, None)).agreement == "outside"


@given(
    st.lists(st.integers(-100, 100), min_size=2, max_size=6),
    st.integers(-100, 100),
    st.integers(-100, 100),
)
def test_the_verdict_does_not_depend_on_zero_or_on_order(values, printed, shift):
    there = Cell(tuple(values), Reported(printed + 0.5, 0.25)).agreement
    moved = tuple(v + shift for v in reversed(values))
    assert Cell(moved, Reported(printed + 0.5 + shift, 0.25)).agreement == there
    mirrored = tuple(-v for v in values)
    assert Cell(mirrored, Reported(-printed - 0.5, 0.25)).agreement == there


# ---- runs as fedbench would leave them


def leave_runs(
    root, experiment, algo, *overrides, seeds=(0, 1, 2), last=None, rounds=None, **facts
):
    """What the command leaves on disk, without having trained; ``last`` is the last round, per seed."""
    chosen = (f"experiment={experiment}", f"algo={algo}")
    typed = [*chosen, *overrides, f"results_dir={root}"]
    config = Composer().config(typed)
    for i, seed in enumerate(seeds):
        path = config.path.parent / f"seed_{seed}"
        path.mkdir(parents=True)
        meta = {
            "status": "done", "seed": seed, "hash": config.digest, **asdict(config.names),
            "departures": config.departures, "overrides": typed, "sources": [], "started": "2024-01-01", **facts,
        }  # fmt: skip
        (path / "meta.json").write_text(json.dumps(meta))
        (path / "config.yaml").write_text(yaml.safe_dump({**config.tree, "seed": seed}))
        ended = {"round": 9, "accuracy_mean": 0.5, "accuracy_std": 0.1, "train_loss": 1.0}
        rows = rounds or [ended | (last[i] if last else {})]
        (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        pd.DataFrame({"round": [9], "client": [0], "accuracy": [0.5]}).to_parquet(
            path / "clients.parquet"
        )
        if meta["status"] in ("done", "diverged"):
            seal(path)
    return config


def shown_table(root, paper, table):
    p = papers()[paper]
    return paper_table(p.tables[table], Evidence(p, Results(root)))


def shown(cell, column, seeds):
    """What the page shows of a cell."""
    texts = {
        "measured": measured_text(cell, column),
        "paper": printed_text(cell, column),
        "difference": difference_text(cell, column),
    }
    return SimpleNamespace(
        **texts, verdict=cell.agreement, number=cell.mean, note=basis_text(cell, column, seeds)
    )


def line(root, paper, table, setup, row=0):
    """What the page shows of a line of a setup's block, by its place."""
    data = shown_table(root, paper, table)
    (block,) = [b for b in data.blocks if b.setup.id == setup]
    found = block.lines[row]
    return SimpleNamespace(
        label=found.label,
        settings=keys_text(found.keys),
        seeds=len(found.matched.runs),
        status=found.status,
        reduced=found.matched.reduced,
        cells=[
            shown(found.cells[i], data.columns[i], block.setup.seeds) for i in main_columns(data)
        ],
        runs=tuple(run_links(found, root / "report")),
        command=command_text(found, block),
        note=row_note(found),
    )


# ---- cells


def test_cells_beside_the_papers_numbers(tmp_path):
    """FedFa, Table 2, synthetic IID, FedAvg: 89.11, 78.17, 100.00 and a variance of 68.04 are printed."""
    last = [
        {
            "accuracy_mean": 0.89 + d,
            "accuracy_worst20": 0.7 + d,
            "accuracy_best20": 1.0,
            "accuracy_variance": None,
        }
        for d in (-0.01, 0.0, 0.01)
    ]
    leave_runs(tmp_path, "fedfa/table2_synthetic_iid", "fedavg", last=last)
    found = line(tmp_path, "fedfa", "table2", "synthetic_iid")
    assert (found.label, found.settings, found.seeds, found.status, found.reduced) == (
        "FedAvg",
        "",
        3,
        "full",
        (),
    )
    average, worst, best, variance = found.cells
    assert (average.measured, average.paper, average.difference) == (
        "89.00 ± 1.00",
        "89.11",
        "-0.11",
    )
    assert (average.verdict, average.number) == ("inside", pytest.approx(89.0))
    one = ". The paper reports one run; the 95 % prediction interval of a further run is 84.03 to 93.97"
    interval = (
        f"n = 3, 95 % interval of the mean {89 - HALF:.2f} to {89 + HALF:.2f}: 89.11 lies inside"
    )
    assert average.note == interval + one
    assert (worst.measured, worst.paper, worst.difference, worst.verdict) == (
        "70.00 ± 1.00",
        "78.17",
        "-8.17",
        "outside",
    )
    assert (best.measured, best.difference, best.verdict) == ("100.00 ± 0.00", "+0.00", "inside")
    assert (variance.measured, variance.paper, variance.verdict, variance.number) == (
        "",
        "68.04",
        "missing",
        None,
    )


def test_the_best_round_where_the_paper_prints_it(tmp_path):
    """FedCAda, Table 1; one of its numbers has three decimals, 66.508."""
    curve = [{"round": 0, "accuracy_mean": 0.7}, {"round": 9, "accuracy_mean": 0.6}]
    leave_runs(tmp_path, "fedcada/table1_device_cifar10_iid", "fedcada", seeds=[0], rounds=curve)
    notes = notes_of(shown_table(tmp_path, "fedcada", "table1"))
    assert any(note.startswith("best round of each run") for note in notes)
    cell = line(tmp_path, "fedcada", "table1", "device_cifar10_iid", 5).cells[0]
    assert (cell.measured, cell.paper, cell.difference) == ("70.000", "66.508", "+3.492")
    # FedCAda's other reading of Adam has no printed number
    assert (
        line(tmp_path, "fedcada", "table3", "silo_cifar10_noniid", 1).cells[0].verdict == "missing"
    )
    leave_runs(
        tmp_path, "fedcada/table1_silo_cifar10_noniid", "fedcada", "algo.adjust=adam", rounds=curve
    )
    adam = line(tmp_path, "fedcada", "table3", "silo_cifar10_noniid", 1)
    assert (adam.status, adam.cells[0].measured, adam.cells[0].paper) == (
        "full",
        "70.00 ± 0.00",
        "",
    )
    assert (adam.cells[0].verdict, adam.cells[0].note) == ("none", "n = 3")


def test_impossible_numbers_are_marked_with_the_reason_in_the_columns_concerned(tmp_path):
    """AdaFed, Table 1: FedAvg in setup 1 has an STD of 3.54 where its tails need 7.8; its average is compared."""
    reason = "these averages need a deviation of at least 7.8"
    whole = f"accuracies of unweighted clients have the printed numbers of this row: {reason}"
    cells = line(tmp_path, "adafed", "table1", "cifar10_s1").cells
    assert [c.verdict for c in cells[:4]] == ["missing", "impossible", "missing", "missing"]
    assert (cells[1].measured, cells[1].paper, cells[1].note) == ("", "3.54", f"No {whole}")
    absent = cells[4]  # setup 1 has no worst 10 %
    assert (absent.paper, absent.verdict, absent.note) == ("", "missing", "")
    last = [
        {"accuracy_mean": v, "accuracy_std": w}
        for v, w in ((0.46, 0.05), (0.47, 0.06), (0.48, 0.07))
    ]
    leave_runs(tmp_path, "adafed/table1_cifar10_s1", "fedavg", last=last)
    average, std, *_ = line(tmp_path, "adafed", "table1", "cifar10_s1").cells
    assert (average.measured, average.difference, average.verdict) == (
        "47.00 ± 1.00",
        "+0.15",
        "inside",
    )
    assert "impossible" not in average.note
    assert "accuracies of unweighted clients" not in average.note
    assert (std.measured, std.difference, std.verdict) == ("6.00 ± 1.00", "+2.46", "impossible")
    assert std.note.endswith(f"No {whole}")


def test_weighted_numbers_are_compared_where_unweighted_ones_are_impossible(tmp_path):
    """AdaFedAdam, Table 5, synthetic, FedAvg: 115.1 % would be left to the other clients, were they not weighted."""
    row = line(tmp_path, "adafedadam", "table5", "synthetic")
    assert [c.verdict for c in row.cells] == ["missing"] * 3
    assert "the 70 clients outside the tails would average 115.1 %" in row.note
    assert "compared with weighted ones" in row.note
    possible = line(tmp_path, "adafedadam", "table7", "synthetic_nesterov", 4)
    assert possible.note == ""


# ---- what became of a row


def test_a_row_without_runs_says_no_more(tmp_path):
    row = line(tmp_path, "fedfa", "table2", "femnist")
    assert (row.status, row.note, row.runs, row.seeds) == ("not run", "", (), 0)


def test_what_ended_a_run_is_said_with_the_others(tmp_path):
    leave_runs(tmp_path, "fedfa/table2_femnist", "fedavg", "rounds=2", seeds=[0])
    leave_runs(
        tmp_path,
        "fedfa/table2_femnist",
        "fedavg",
        "rounds=2",
        seeds=[1],
        status="failed",
        error="OSError: full",
    )
    row = line(tmp_path, "fedfa", "table2", "femnist")
    assert (row.status, row.note) == ("reduced", "seed 1 failed; OSError: full")
    rounds = compose_run(["experiment=fedfa/table2_femnist"]).rounds
    assert row.reduced == (f"rounds 2 (paper {rounds})",)


def test_runs_that_failed_are_named(tmp_path):
    leave_runs(tmp_path, "fedfa/table2_femnist", "fedavg", status="diverged", seeds=[0, 2])
    row = line(tmp_path, "fedfa", "table2", "femnist")
    assert (row.status, row.note) == (
        "failed",
        "seed 0 (local.lr=0.003) diverged; seed 2 (local.lr=0.003) diverged",
    )
    leave_runs(tmp_path, "fedfa/table2_sent140", "fedavg", status="running", seeds=[0])
    assert line(tmp_path, "fedfa", "table2", "sent140").status == "not run"


# ---- the command of a row


def test_the_command_of_a_row_that_was_not_run():
    wanted = {
        "algo.gamma": 5.0,
        "local.batch_size": "full",
        "local.epochs": [1, 5],
        "algo.clip": None,
        "algo.on": True,
    }
    row = papers()["adafed"].tables["table1"].rows[0]
    given = Line("adafed", "AdaFed", {}, MatchedRuns({}), (), row, wanted)
    setup = Setup("s", "One", "a/b", 2, 3, 5)
    assert command_text(given, RowGroup(setup, ())) == (
        "fedbench -m experiment=a/b algo=adafed algo.gamma=5 local.batch_size=full 'local.epochs=[1,5]' "
        f"algo.clip=null algo.on=true seed={','.join(map(str, range(setup.seeds)))}"
    )


ROWS = [
    ("adafedadam", "table5", "synthetic", 0, ("rounds=7", "participation=0.5")),
    ("adafedadam", "table5", "cifar10_dir005", 4, ("model=mlp_200_200", "model.hidden=[64,32]")),
    ("adafedadam", "table5", "femnist", 0, ("rounds=50", "data.clients=null")),
    ("adafedadam", "table5", "sent140", 1, ("rounds=2", "model.layers=1", "model.hidden=4", "local.steps=2")),
    ("adafedadam", "table2", "cifar10_hetero", 0, ("local.epochs=[1,3]", "eval_every=1", "keep_clients=[0,5]")),
    ("adafed", "table1", "cifar10_s1", 0, ("improved_clients=false", "engine.precision=float64", "data.clients=50")),
    ("adafed", "table19", "clothing1m", 1, ("rounds=1100", "algo.iterations=2")),
    ("adafed", "table19", "clothing1m", 3, ("rounds=5", "algo.iterations=2", "algo.server.gamma=5", "model=linear")),
    ("fedcada", "table3", "silo_cifar10_noniid", 4, ("algo.adjust=sin", "rounds=20")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("paper", "table", "setup", "row", "overrides"),
    ROWS,
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else str(v),
)
def test_the_command_leads_to_the_same_runs(tmp_path, paper, table, setup, row, overrides):
    """What the report prints has the identity of the runs it shows, whatever had been typed, and their seeds."""
    p = papers()[paper]
    method = [r for r in p.tables[table].rows if r.setup == setup][row].algo
    config = leave_runs(
        tmp_path, p.setups[setup].experiment, p.methods[method].algo, *overrides, seeds=[2, 5]
    )
    found = line(tmp_path, paper, table, setup, row)
    assert found.seeds == 2
    first, flag, *words, seeds = shlex.split(found.command)
    assert (first, flag, seeds) == ("fedbench", "-m", "seed=2,5")
    again = compose_run([*words, "seed=2", f"results_dir={tmp_path}"])
    assert again.digest == config.digest
    assert again.path == config.path.parent / "seed_2"


def test_where_one_more_run_would_lie():
    """t with 2 degrees of freedom is 4.3027; 2 ± 4.3027 · 1 · sqrt(1 + 1/3)."""
    for values, words in (((1.0, 2.0, 3.0), "-2.97 to 6.97"), ((5.0, 5.0), "5.00 to 5.00")):
        text = basis_text(Cell(values, Reported(2.0, None)), COLUMN, 1)
        assert text.endswith(f"of a further run is {words}")
