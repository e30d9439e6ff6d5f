"""Tables from runs on disk, made here by hand: the closing tables of a sweep, and rows of any runs."""

import json

import pytest
import yaml
from fake_runs import edit, seal
from units import unit

from fedbench.analysis.build_tables import paper_table, run_tables, summary_tables
from fedbench.analysis.matching import Evidence
from fedbench.analysis.table_model import Cell
from fedbench.config.overrides import options
from fedbench.core.config_values import keys_text
from fedbench.papers.registry import papers
from fedbench.papers.schema import Reported
from fedbench.reports.summary_table import summary_text
from fedbench.reports.table_pages import notes_of, table_csv, table_latex, table_markdown
from fedbench.runs.results import Results

EXPERIMENT = "adafedadam/table5_synthetic"


def write_run(
    root,
    algo,
    seed,
    mean,
    experiment=EXPERIMENT,
    status="done",
    departures=None,
    config=None,
    digest="abc",
):
    path = root / (experiment or "data") / algo / digest / f"seed_{seed}"
    path.mkdir(parents=True)
    meta = {
        "status": status, "seed": seed, "hash": digest, "algo": algo, "data": "synthetic_leaf", "model": "linear",
        "experiment": experiment, "departures": departures or {}, "sources": [], "overrides": [],
        "started": "2024-01-01",
    }  # fmt: skip
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "config.yaml").write_text(
        yaml.safe_dump({"algo": {}, "seed": seed, "rounds": 1000, **(config or {})})
    )
    metrics = ["mean", "std", "worst30", "mean_weighted", "std_weighted", "worst30_weighted"]
    row = {
        "round": 9,
        **{f"accuracy_{m}": mean for m in metrics},
        "angle_degrees": 7.0,
        "kl_uniform": 0.01,
    }
    (path / "rounds.jsonl").write_text(json.dumps({"round": 0}) + "\n" + json.dumps(row) + "\n")
    if status in ("done", "diverged"):
        seal(path)


def summary(root):
    """The rows of the paper, and those of other settings if there are any."""
    first, *others = summary_tables(list(Results(root)))
    assert len(others) < 2
    return (first, *others) if others else first


def said(root):
    return summary_text(summary_tables(list(Results(root))))


def own(root):
    (table,) = run_tables(Results(root))
    return table


def texts(table):
    return table_markdown(table), table_latex(table), table_csv(table)


def cell(table, line, name):
    return line.cells[[c.name for c in table.columns].index(name)]


def settings(table):
    return [keys_text(line.keys) for line in table.lines]


# ---- a setup of a paper


def test_mean_and_sample_std_over_seeds(tmp_path):
    for seed, value in enumerate((0.90, 0.92, 0.97)):
        write_run(tmp_path, "fedavg", seed, value)
    table = summary(tmp_path)
    (line,) = table.lines
    found = cell(table, line, "accuracy_mean_weighted")
    assert found.mean == pytest.approx(93.0)
    assert found.std == pytest.approx(3.605551275)  # √((9 + 1 + 16) / 2)
    assert found.printed.mean == 88.34
    assert found.difference == pytest.approx(4.66)
    assert line.matched.reduced == ()
    text = texts(table)[0]
    assert text.startswith("## AdaFedAdam, Table 5\n")
    for part in ("93.00 ± 3.61 ≈ 88.34 ± 0.55", "average %"):
        assert part in text
    (row,) = [row for row in text.splitlines() if row.startswith("| FedAvg")]
    assert row.rstrip(" |").endswith("full")


def test_a_sweep_closes_with_the_table_of_the_report(tmp_path):
    """Its title, columns and labels are those of the paper's table, and it has the rows that were run alone."""
    for algo in ("adafedadam", "fedavg"):
        write_run(tmp_path, algo, 0, 0.9)
    table = summary(tmp_path)
    assert (table.name, len(table.blocks), table.blocks[0].setup.id) == (
        "adafedadam/table5",
        1,
        "synthetic",
    )
    assert [line.label for line in table.lines] == ["FedAvg", "AdaFedAdam"]
    assert [c.metric.id for c in table.columns if c.printed] == list(
        papers()["adafedadam"].tables["table5"].columns
    )
    fields = {c.metric.field for c in table.columns}
    assert {
        "accuracy_mean",
        "accuracy_mean_weighted",
        "accuracy_worst30",
        "angle_degrees",
        "kl_uniform",
    } <= fields


def test_one_seed_has_no_spread_and_is_reduced(tmp_path):
    write_run(tmp_path, "fedavg", 0, 0.9, departures={"rounds": [1000, 100]})
    table = summary(tmp_path)
    assert cell(table, table.lines[0], "accuracy_mean").std is None
    assert table.lines[0].matched.reduced == ("rounds 100 (paper 1000)", "seeds 1 (paper 3)")
    for text in texts(table):
        assert "rounds 100 (paper 1000)" in text
        rows = [
            line for line in text.splitlines() if "FedAvg &" in line or line.startswith("| FedAvg")
        ]
        assert all("reduced" in row for row in rows)  # wherever a number is shown


def test_rows_are_in_the_papers_order_and_unknown_methods_follow(tmp_path):
    for algo in ("adafedadam", "fedprox", "fedavg", "qfedavg"):
        write_run(tmp_path, algo, 0, 0.9)
    table, others = summary(tmp_path)
    assert [line.algo for line in table.lines] == ["fedavg", "qfedavg", "adafedadam"]
    assert (others.name, [line.algo for line in others.lines]) == (EXPERIMENT, ["fedprox"])
    assert cell(others, others.lines[0], "accuracy_mean_weighted").printed is None
    write_run(
        tmp_path,
        "fedavg",
        0,
        0.9,
        config={"rounds": 5},
        departures={"local.nu": [1, 2]},
        digest="z",
    )
    rows = own(tmp_path).lines
    assert list(dict.fromkeys(line.algo for line in rows)) == [
        "fedavg",
        "qfedavg",
        "adafedadam",
        "fedprox",
    ]


def test_further_splits_are_rows_of_a_sweep_and_notes_of_a_report(tmp_path):
    """A table of the paper has the split that the experiment draws; a run elsewhere is not reduced by its split."""
    write_run(tmp_path, "fedavg", 0, 0.9, config={"data": {"seed": 0}})
    other = {"departures": {"data.seed": [0, 3]}, "config": {"data": {"seed": 3}}, "digest": "def"}
    write_run(tmp_path, "fedavg", 0, 0.5, **other)
    first, table = summary(tmp_path)
    assert [list(line.matched.runs) for line in first.lines] == [[unit(0)]]
    assert [list(line.matched.runs) for line in table.lines] == [[unit(0)], [unit(0, 3)]]
    assert [line.keys.get("data.seed") for line in table.lines] == [0, 3]
    assert all("data.seed" not in d for line in table.lines for d in line.matched.reduced)
    runs = list(Results(tmp_path))
    paper = papers()["adafedadam"]
    printed = paper_table(paper.tables["table5"], Evidence(paper, runs))
    assert [list(line.matched.runs) for line in printed.lines if line.matched.runs] == [[unit(0)]]
    (note,) = [n for n in notes_of(printed) if "split" in n]
    assert "Synthetic, vanilla SGD: the table has the runs on the split" in note
    assert "(data.seed 3)" in note
    assert not run_tables(runs, [printed])


def test_runs_that_are_not_done_are_named_and_not_counted(tmp_path):
    write_run(tmp_path, "fedavg", 0, 0.9)
    write_run(tmp_path, "fedavg", 1, 0.1, status="diverged")
    write_run(tmp_path, "fedavg", 2, 0.1, status="failed")
    write_run(tmp_path, "fedprox", 0, 0.1, status="running")
    table, others = summary(tmp_path)
    assert [line.algo for line in table.lines] == ["fedavg"]
    assert list(table.lines[0].matched.runs) == [unit(0)]
    text = texts(table)[0]
    (note,) = [x for x in text.splitlines() if x.startswith("- FedAvg: ")]
    assert note.endswith("; seed 1 diverged; seed 2 failed")
    assert [line.status for line in others.lines] == ["not run"]
    assert "- fedprox: seed 0 not finished" in texts(others)[0]


def test_a_row_of_another_table_is_not_set_beside_this_one(tmp_path):
    """Figure 3 sweeps alpha: its runs are as the paper has them, but not those of Table 5, which has alpha 1."""
    for alpha in (4.0, 1.0, 0.3, 2):
        departs = {} if alpha == 1.0 else {"algo.alpha": [1.0, alpha]}
        write_run(
            tmp_path,
            "adafedadam",
            0,
            0.9,
            departures=departs,
            config={"algo": {"alpha": alpha}},
            digest=f"{alpha}",
        )
    table, others = summary(tmp_path)
    (row,) = table.lines
    few = "seeds 1 (paper 3)"
    assert cell(table, row, "accuracy_mean_weighted").printed == Reported(94.18, 0.45)
    assert (keys_text(row.keys), row.matched.reduced) == ("", (few,))
    # in the order of alpha
    assert [(keys_text(row.keys), row.matched.reduced) for row in others.lines] == [
        ("algo.alpha=0.3", ("algo.alpha 0.3 (paper 1)", few)),
        ("algo.alpha=1", (few,)),
        ("algo.alpha=2", (few,)),
        ("algo.alpha=4", (few,)),
    ]


def test_data_that_are_not_official_are_named(tmp_path):
    write_run(tmp_path, "fedavg", 0, 0.9)
    (meta,) = tmp_path.rglob("meta.json")
    facts = json.loads(meta.read_text())
    known = {"unofficial": ["X: a lossy copy"]}
    edit(meta, lambda _: json.dumps(facts | known))
    assert ", data: X: a lossy copy" in " ".join(said(tmp_path).split())
    edit(meta, lambda _: json.dumps(facts | known | {"experiment": None}))
    assert "\n- X: a lossy copy" in said(tmp_path)
    edit(
        meta,
        lambda _: json.dumps(facts | {"sources": ["X: not the official files"], "unofficial": []}),
    )
    assert "official" not in said(tmp_path)


# ---- runs of no row


def test_a_reduced_run_is_marked_where_no_paper_prints_numbers_too(tmp_path):
    """An experiment behind a figure alone; a row at its full setting is not marked."""
    for digest, departures in (("abc", {}), ("xyz", {"rounds": [1000, 9]})):
        rounds = 9 if departures else 1000
        write_run(
            tmp_path,
            "fedavg",
            0,
            0.9,
            "fafed/figure2_mnist_low",
            "done",
            departures,
            {"rounds": rounds},
            digest,
        )
    table = summary(tmp_path)
    assert table.table is None
    for text, sign in zip(texts(table)[:2], "|&", strict=True):
        full, reduced = (
            next(x for x in text.splitlines() if f"rounds={n} " in x) for n in (1000, 9)
        )
        assert [x.split(sign)[-1 - (sign == "|")].strip(" \\") for x in (full, reduced)] == [
            "full",
            "reduced",
        ]
        assert [
            x
            for x in text.splitlines()
            if "rounds 9 (paper 1000)" in x and x.startswith(("- ", r"\par"))
        ]
    write_run(tmp_path / "own", "fedavg", 0, 0.9, None)
    assert "status" not in texts(own(tmp_path / "own"))[0]


def test_settings_of_one_method_are_told_apart(tmp_path):
    for digest, q in (("aaa", 1), ("bbb", 0.1)):
        write_run(
            tmp_path, "qfedavg", 0, 0.9, None, config={"algo": {"q": q, "L": None}}, digest=digest
        )
    write_run(tmp_path, "fedavg", 0, 0.9, None, config={"algo": {"server_lr": 1}})
    table = own(tmp_path)
    assert settings(table) == ["", "algo.q=0.1", "algo.q=1"]
    assert "paper" not in texts(table)[0]


def test_rows_are_in_the_order_of_the_varied_key(tmp_path):
    """By size, whatever their hashes are: 0, 1, 2, 3, 10."""
    for digest, alpha in zip("eadbc", (3, 0, 10.0, 2, 1), strict=True):
        write_run(
            tmp_path, "fedavg", 0, 0.9, None, config={"algo": {"alpha": alpha}}, digest=digest
        )
    assert settings(own(tmp_path)) == [f"algo.alpha={a}" for a in (0, 1, 2, 3, 10)]


def test_a_method_with_one_setting_says_what_it_differs_in_from_others(tmp_path):
    """Shared keys are compared between all methods; what the source repeats of the data, and places, say nothing."""

    def config(lr, clients, place):
        data = {"clients": clients, "source": {"clients": clients}}
        return {
            "local": {"lr": lr, "momentum": 0},
            "data": data,
            "results_dir": place,
            "engine": {"mode": place},
        }

    write_run(tmp_path, "fedavg", 0, 0.9, None, config=config(0.1, 5, "a"))
    write_run(tmp_path, "fedprox", 0, 0.9, None, config=config(0.01, 5, "b"))
    assert settings(own(tmp_path)) == ["local.lr=0.1", "local.lr=0.01"]
    write_run(tmp_path, "fedprox", 0, 0.9, None, config=config(0.01, 7, "b"), digest="other")
    assert settings(own(tmp_path)) == [
        "data.clients=5 local.lr=0.1", "data.clients=5 local.lr=0.01", "data.clients=7 local.lr=0.01",
    ]  # fmt: skip


def test_a_run_that_diverged_is_named_with_its_rate_and_what_distinguishes_it(tmp_path):
    """Also where it is the only run of its setting, whose row then has no numbers."""
    for i, (lr, status) in enumerate(((0.1, "done"), (10.0, "diverged"))):
        write_run(
            tmp_path, "fedavg", 0, 0.5, None, status, config={"local": {"lr": lr}}, digest=f"d{i}"
        )
    table = own(tmp_path)
    assert settings(table) == ["local.lr=0.1", "local.lr=10"]
    assert [line.status for line in table.lines] == ["full", "failed"]
    assert "- fedavg local.lr=10: seed 0 (local.lr=10) diverged" in texts(table)[0]
    write_run(tmp_path / "b", "fedavg", 0, 0.5, None, config={"local": {"lr": 0.1}})
    for seed in (1, 3):
        write_run(
            tmp_path / "b", "fedavg", seed, 0.5, None, "diverged", config={"local": {"lr": 0.1}}
        )
    table = own(tmp_path / "b")
    assert (
        "- fedavg: seed 1 (local.lr=0.1) diverged; seed 3 (local.lr=0.1) diverged"
        in texts(table)[0]
    )


def test_settings_that_differ_in_the_content_of_a_file_have_their_hash(tmp_path):
    for digest in ("aaa", "bbb"):
        write_run(tmp_path, "fedavg", 0, 0.9, None, digest=digest)
    assert settings(own(tmp_path)) == ["hash=aaa", "hash=bbb"]


def test_notes_say_which_rows_are_reduced(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed, 0.9, config={"rounds": 1000})
        write_run(
            tmp_path,
            "fedavg",
            seed,
            0.8,
            config={"rounds": 9},
            digest="xyz",
            departures={"rounds": [1000, 9]},
        )
    assert "- reduced, FedAvg rounds=9: rounds 9 (paper 1000)\n" in texts(summary(tmp_path)[1])[0]


def test_a_metric_that_was_not_measured_is_nothing():
    assert (Cell().mean, Cell().std, Cell().bounds, Cell().difference, Cell().agreement) == (
        *[None] * 4,
        "missing",
    )
    assert Cell((1.0,)).difference is None


# ---- the papers' numbers


def test_every_setup_of_a_paper_is_an_experiment_and_vice_versa():
    """But for Table 7's first block, which is Table 5's; the benchmark is no paper's of these."""
    setups = {s.experiment for p in papers().values() for s in p.setups.values()}
    assert setups <= set(options("experiment"))
    others = {
        name for name in set(options("experiment")) - setups if not name.startswith("fairness/")
    }
    assert others == {"smoke", "adafedadam/table7_synthetic"}


# ---- the text at the end of a sweep


def test_the_closing_text_fits_a_terminal_and_marks_the_best(tmp_path):
    for algo, shift in (("fedavg", 0.0), ("adafedadam", 0.05)):
        for seed in range(3):
            write_run(tmp_path, algo, seed, 0.89 + shift + seed / 1000)
    text = said(tmp_path)
    assert max(map(len, text.splitlines())) <= 100
    assert "\n## AdaFedAdam, Table 5: Synthetic, vanilla SGD\n" in f"\n{text}"
    assert " over seeds, then the paper's number: ≈ if" in " ".join(text.split())
    first, second = (
        line for line in text.splitlines() if line.startswith(("| FedAvg", "| AdaFedAdam"))
    )
    assert first.split("|")[2].strip() == "89.10±0.10 ≈ 88.34±0.55"
    assert second.split("|")[2].strip() == "*94.10±0.10 ≈ 94.18±0.45"
    assert text.endswith("\n- 2 of 6 numbers of the paper agree with ours (≈)")


def test_the_columns_of_the_printed_table_are_those_that_are_typed(tmp_path, fed):
    for seed in range(2):
        write_run(tmp_path, "fedavg", seed, 0.5, experiment=None)
    status, out, _ = fed("report", str(tmp_path), "--metric", "kl_uniform,accuracy_mean")
    rows = [line for line in out if line.startswith("|")]
    assert (status, [cell.strip() for cell in rows[0].split("|")[1:-1]]) == (
        0,
        ["method", "seeds", "KL", "mean"],
    )
    assert not (tmp_path / "report").exists()
    status, _, error = fed("report", str(tmp_path), "--metric", "kl")
    assert (status, "metric must be one of accuracy_mean_weighted," in error) == (2, True)
    status, _, error = fed("report", str(tmp_path), "--metric", "kl_uniform", "--paper", "fedfa")
    assert (status, "writes no report; remove --into and --paper" in error) == (2, True)


def test_metrics_without_room_are_named_and_reductions_are_in_the_title(tmp_path):
    for seed in range(3):
        for algo, lr in (("fedavg", 0.1), ("fedavg", 0.2)):
            config = {"data": {"name": "x" * 9}, "local": {"lr": lr}}
            write_run(tmp_path, algo, seed, lr, experiment=None, config=config, digest=str(lr))
    text = said(tmp_path)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in rows[0].split("|")[1:-1]][:5] == [
        "method",
        "settings",
        "seeds",
        "mean",
        "STD",
    ]
    assert max(map(len, rows)) <= 100
    assert "\n- also on the page: " in text
    write_run(tmp_path, "fedavg", 0, 0.9, departures={"rounds": [1, 1000]})
    assert "## adafedadam/table5_synthetic (reduced)\n" in said(tmp_path)


def test_rows_that_share_the_best_mean_are_all_marked(tmp_path):
    for algo, value in (("fedavg", 0.5), ("fedprox", 0.5), ("qfedavg", 0.4)):
        write_run(tmp_path, algo, 0, value, experiment=None)
    rows = [
        line.split("|")[3].strip() for line in said(tmp_path).splitlines() if line.startswith("| ")
    ]
    assert rows[2:] == ["*50.00", "*50.00", "40.00"]
