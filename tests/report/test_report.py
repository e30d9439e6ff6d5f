"""Tables from runs made by hand: the closing tables of a sweep, and rows of any runs."""

import re
from dataclasses import replace

import pytest
from fake_runs import change_facts, facts_of, write_run
from table_readers import markdown_tables
from units import unit

from fedbench.analysis.build_tables import paper_table, run_tables, summary_tables
from fedbench.analysis.matching import Evidence
from fedbench.config.overrides import options
from fedbench.core.config_values import keys_text
from fedbench.papers.registry import papers
from fedbench.papers.schema import Reported
from fedbench.reports.summary_table import summary_text
from fedbench.reports.table_pages import agreements, notes_of, table_markdown
from fedbench.runs.results import Results

EXPERIMENT = "adafedadam/table5_synthetic"
FEW = "seeds 1 (paper 3)"


def leave(
    root,
    algo="fedavg",
    seed=0,
    mean=0.9,
    experiment=EXPERIMENT,
    digest="abc",
    **more,
):
    """Leave a run whose accuracies are all alike; ``config`` has dotted keys."""
    config = {"rounds": 1000, "seed": seed, **more.pop("config", {})}
    if algo == "adafedadam":
        config["algo.inverse_rate"] = "ratio"  # a key of the paper's rows
    meta = facts_of(
        seed=seed,
        hash=digest,
        algo=algo,
        experiment=experiment,
        **more,
    )
    kinds = ("mean", "std", "worst30")
    accuracies = {f"accuracy_{kind}": mean for kind in kinds}
    weighted = {f"accuracy_{kind}_weighted": mean for kind in kinds}
    last = {
        "round": 9,
        **accuracies,
        **weighted,
        "angle_degrees": 7.0,
        "kl_uniform": 0.01,
    }
    path = root / (experiment or "data") / algo / digest / f"seed_{seed}"
    write_run(path, meta, config, [{"round": 0}, last])


def summary(root):
    """The tables at the end of a sweep."""
    return summary_tables(list(Results(root)))


def said(root):
    return summary_text(summary(root))


def own(root):
    (table,) = run_tables(Results(root))
    return table


def cell(table, line, name):
    names = [column.name for column in table.columns]
    return line.cells[names.index(name)]


def settings(table):
    return [keys_text(line.keys) for line in table.lines]


def algos(table):
    return [line.algo for line in table.lines]


# ---- a setup of a paper


def test_mean_and_sample_std_over_seeds(tmp_path):
    for seed, value in enumerate((0.90, 0.92, 0.97)):
        leave(tmp_path, seed=seed, mean=value)
    (table,) = summary(tmp_path)
    (line,) = table.lines
    weighted = cell(table, line, "accuracy_mean_weighted")
    assert weighted.mean == pytest.approx(93.0)
    assert weighted.std == pytest.approx(3.605551275)  # √((9 + 1 + 16) / 2)
    assert weighted.printed.mean == 88.34
    assert weighted.difference == pytest.approx(4.66)
    assert line.matched.reduced == ()


def test_rows_are_in_the_papers_order_and_unknown_methods_follow(tmp_path):
    for algo in ("adafedadam", "fedprox", "fedavg", "qfedavg"):
        leave(tmp_path, algo)
    table, others = summary(tmp_path)
    assert algos(table) == ["fedavg", "qfedavg", "adafedadam"]
    assert others.name == EXPERIMENT
    assert algos(others) == ["fedprox"]
    assert cell(others, others.lines[0], "accuracy_mean_weighted").printed is None


def test_typed_splits_are_rows_of_a_sweep_and_values_of_a_paper(tmp_path):
    """Another split is the same setting of a paper, and does not reduce a run."""
    leave(tmp_path, config={"data.seed": None})
    more = {"config": {"data.seed": 3}, "departures": {"data.seed": [None, 3]}}
    leave(tmp_path, mean=0.5, digest="def", **more)
    first, table = summary(tmp_path)
    assert [list(line.matched.runs) for line in first.lines] == [[unit(0)]]
    assert [list(line.matched.runs) for line in table.lines] == [[unit(0)], [unit(0, 3)]]
    assert settings(table) == ["data.seed=null", "data.seed=3"]
    assert {line.matched.reduced for line in table.lines} == {(FEW,)}

    runs = list(Results(tmp_path))
    paper = papers()["adafedadam"]
    printed = paper_table(paper.tables["table5"], Evidence(paper, runs))
    (line,) = [line for line in printed.lines if line.matched.runs]
    assert list(line.matched.runs) == [unit(0), unit(0, 3)]
    assert cell(printed, line, "accuracy_mean_weighted").values == pytest.approx((90, 50))
    assert not [note for note in notes_of(printed) if "split" in note]
    assert not run_tables(runs, [printed])


def test_runs_that_are_not_done_are_named_and_not_counted(tmp_path):
    for seed, status in enumerate(("done", "diverged", "failed")):
        leave(tmp_path, seed=seed, status=status)
    leave(tmp_path, "fedprox", status="running")
    table, others = summary(tmp_path)
    (line,) = table.lines
    assert list(line.matched.runs) == [unit(0)]
    assert "; seed 1 diverged; seed 2 failed\n" in table_markdown(table)
    assert [line.status for line in others.lines] == ["not run"]
    assert "- fedprox: seed 0 not finished" in table_markdown(others)


def test_a_row_of_another_table_is_not_set_beside_this_one(tmp_path):
    """Figure 3 sweeps alpha: its runs are as the paper has them, and Table 5 has alpha 1."""
    for alpha in (4.0, 1.0, 0.3, 2):
        departures = {} if alpha == 1.0 else {"algo.alpha": [1.0, alpha]}
        config = {"algo.alpha": alpha}
        leave(tmp_path, "adafedadam", config=config, departures=departures, digest=f"{alpha}")
    table, others = summary(tmp_path)
    (row,) = table.lines
    assert cell(table, row, "accuracy_mean_weighted").printed == Reported(94.18, 0.45)
    assert settings(table) == [""]
    assert row.matched.reduced == (FEW,)
    assert settings(others) == [f"algo.alpha={alpha}" for alpha in (0.3, 1, 2, 4)]
    assert [line.matched.reduced for line in others.lines] == [
        ("algo.alpha 0.3 (experiment 1)", FEW),
        (FEW,),
        (FEW,),
        (FEW,),
    ]


def test_data_that_are_not_official_are_named(tmp_path):
    leave(tmp_path)
    change_facts(tmp_path, unofficial=["X: a lossy copy"])
    assert ", data: X: a lossy copy" in " ".join(said(tmp_path).split())
    change_facts(tmp_path, experiment=None)
    assert "\n- X: a lossy copy" in said(tmp_path)
    change_facts(tmp_path, sources=["X: not official"], unofficial=[])
    assert "official" not in said(tmp_path)


# ---- runs of no row


def test_a_reduced_run_is_marked_where_no_paper_prints_numbers_too(tmp_path):
    """An experiment behind a figure alone; a row at its full setting is not marked."""
    figure = "fafed/figure2_mnist_low"
    leave(tmp_path, experiment=figure)
    cut = {
        "config": {"rounds": 9},
        "departures": {"rounds": [1000, 9]},
    }
    leave(tmp_path, experiment=figure, digest="xyz", **cut)
    (table,) = summary(tmp_path)
    assert table.table is None
    text = table_markdown(table)
    assert re.search(r"rounds=1000 .* full +\|$", text, re.M)
    assert re.search(r"rounds=9 .* reduced +\|$", text, re.M)
    assert re.search(r"^- reduced, .*: rounds 9 \(experiment 1000\)$", text, re.M)


def test_rows_are_in_the_order_of_the_varied_key(tmp_path):
    """By size, whatever their hashes are: 0, 1, 2, 3, 10."""
    for digest, alpha in zip("eadbc", (3, 0, 10.0, 2, 1), strict=True):
        leave(tmp_path, experiment=None, config={"algo.alpha": alpha}, digest=digest)
    table = own(tmp_path)
    assert settings(table) == [f"algo.alpha={alpha}" for alpha in (0, 1, 2, 3, 10)]
    assert "status" not in table_markdown(table)
    assert "paper" not in table_markdown(table)


def test_a_method_with_one_setting_shows_its_difference_from_others(tmp_path):
    """Keys are compared between methods; copies of data keys, and directories, say nothing."""

    def config(lr, clients, place):
        return {
            "local.lr": lr,
            "local.momentum": 0,
            "data.clients": clients,
            "data.source.clients": clients,
            "results_dir": place,
            "engine.mode": place,
        }

    leave(tmp_path, experiment=None, config=config(0.1, 5, "a"))
    leave(
        tmp_path,
        "fedprox",
        experiment=None,
        config=config(0.01, 5, "b"),
    )
    assert settings(own(tmp_path)) == ["local.lr=0.1", "local.lr=0.01"]
    leave(
        tmp_path,
        "fedprox",
        experiment=None,
        config=config(0.01, 7, "b"),
        digest="other",
    )
    assert settings(own(tmp_path)) == [
        "data.clients=5 local.lr=0.1",
        "data.clients=5 local.lr=0.01",
        "data.clients=7 local.lr=0.01",
    ]


def test_runs_that_diverged_are_named_with_their_rate_and_setting(tmp_path):
    """A setting whose only run diverged has a row without numbers."""
    leave(tmp_path, experiment=None, config={"local.lr": 0.1})
    rate = {"config": {"local.lr": 10.0}, "digest": "def"}
    for seed in (1, 3):
        leave(tmp_path, seed=seed, experiment=None, status="diverged", **rate)
    table = own(tmp_path)
    assert settings(table) == ["local.lr=0.1", "local.lr=10"]
    assert [line.status for line in table.lines] == ["full", "failed"]
    note = "seed 1 (local.lr=10) diverged; seed 3 (local.lr=10) diverged"
    assert f"- fedavg local.lr=10: {note}" in table_markdown(table)


def test_settings_that_differ_in_the_content_of_a_file_have_their_hash(tmp_path):
    for digest in ("aaa", "bbb"):
        leave(tmp_path, experiment=None, digest=digest)
    assert settings(own(tmp_path)) == ["hash=aaa", "hash=bbb"]


# ---- the papers' numbers


def test_every_setup_of_a_paper_is_an_experiment_and_vice_versa():
    """But for Table 7's first block, which is Table 5's, and the benchmarks."""
    setups = {setup.experiment for paper in papers().values() for setup in paper.setups.values()}
    experiments = set(options("experiment"))
    assert setups <= experiments
    others = {
        name for name in experiments - setups if not name.startswith(("fairness/", "personal/"))
    }
    assert others == {"smoke", "adafedadam/table7_synthetic"}


# ---- the text at the end of a sweep


def rows(text):
    """The cells of the rows of a printed table, headings first."""
    ((_, lines),) = markdown_tables(text)
    return lines


def test_the_closing_text_fits_a_terminal_and_marks_the_best(tmp_path):
    """Of three splits with an STD of 0.10, another one is within 4.303 * 0.10 * √(4 / 3) = 0.50 of
    the mean: 94.18 is near 94.10, and 88.34 not near 89.10.
    """
    for algo, mean in (("fedavg", 0.89), ("adafedadam", 0.94)):
        for seed in range(3):
            leave(tmp_path, algo, seed, mean + seed / 1000)
    text = said(tmp_path)
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith("## AdaFedAdam, Table 5: Synthetic, vanilla SGD\n")
    _, first, second = rows(text)
    assert first[:2] == ["FedAvg", "89.10±0.10 ≠ 88.34±0.55"]
    assert second[:2] == ["AdaFedAdam", "*94.10±0.10 ≈ 94.18±0.45"]
    verdict = (
        "- 1 of 6 numbers of the paper are inside our 95 % interval (≈), which is wide with 3 seeds"
    )
    assert text.endswith(f"\n{verdict}")


def test_reduced_rows_are_not_counted_as_inside_or_outside(tmp_path):
    for seed in range(3):
        leave(tmp_path, "fedavg", seed, 0.89 + seed / 1000)
    (table,) = summary(tmp_path)
    assert agreements(table)["outside"] > 0
    (block,) = table.blocks
    lines = []
    for line in block.lines:
        matched = replace(line.matched, reduced=("10 of 1000 rounds",))
        lines.append(replace(line, matched=matched))
    reduced = replace(table, blocks=(replace(block, lines=tuple(lines)),))
    assert not agreements(reduced)


def test_the_columns_of_the_printed_table_are_those_that_are_typed(tmp_path, fed):
    leave(tmp_path, experiment=None)
    status, out, _ = fed("report", str(tmp_path), "--metric", "kl_uniform,accuracy_mean")
    assert status == 0
    assert rows("\n".join(out))[0] == ["method", "seeds", "KL", "mean"]
    assert not (tmp_path / "report").exists()
    status, _, error = fed("report", str(tmp_path), "--metric", "kl")
    assert status == 2
    assert "metric must be one of accuracy_mean_weighted," in error
    status, _, error = fed(
        "report",
        str(tmp_path),
        "--metric",
        "kl_uniform",
        "--paper",
        "fedfa",
    )
    assert status == 2
    assert "writes no report; remove --into and --paper" in error


def test_metrics_without_room_are_named_and_can_be_printed(fed, tmp_path):
    for lr in (0.1, 0.2):
        config = {"data.name": "x" * 9, "local.lr": lr}
        for seed in range(3):
            leave(
                tmp_path,
                seed=seed,
                mean=lr,
                experiment=None,
                config=config,
                digest=str(lr),
            )
    text = said(tmp_path)
    head, *_ = rows(text)
    assert head[:5] == ["method", "settings", "seeds", "mean", "STD"]
    assert max(map(len, text.splitlines())) <= 100
    (note,) = [n for n in text.replace("\n  ", " ").splitlines() if n.startswith("- also on")]
    names = note.partition("fedbench report DIR --metric ")[2].removesuffix(" prints them")
    status, out, _ = fed("report", str(tmp_path), "--metric", names)
    assert status == 0
    labels = note.removeprefix("- also on the page: ").partition(";")[0].split(", ")
    shown, *_ = rows("\n".join(out))
    assert shown[3:] == labels[: len(shown) - 3]


def test_the_title_of_reduced_rows_says_so(tmp_path):
    leave(tmp_path, departures={"rounds": [1, 1000]})
    assert "## adafedadam/table5_synthetic (reduced)\n" in said(tmp_path)


def test_rows_that_share_the_best_mean_are_all_marked(tmp_path):
    for algo, value in (
        ("fedavg", 0.5),
        ("fedprox", 0.5),
        ("qfedavg", 0.4),
    ):
        leave(tmp_path, algo, mean=value, experiment=None)
    _, *lines = rows(said(tmp_path))
    assert [line[2] for line in lines] == ["*50.00", "*50.00", "40.00"]
