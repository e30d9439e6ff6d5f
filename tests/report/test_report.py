"""Tables from runs on disk, made here by hand."""

import json

import pytest
import yaml
from tools import composed

from fedbench.config.schema import options
from fedbench.papers.known import find_known
from fedbench.papers.registry import Reported, papers
from fedbench.report.present import summary, to_csv, to_latex, to_markdown
from fedbench.report.render import csv_text, latex, markdown
from fedbench.report.tables import Cell, tabulate
from fedbench.runs.store import ResultStore

EXPERIMENT = "adafedadam/table5_synthetic"


def write_run(root, algo, seed, mean, experiment=EXPERIMENT, status="done", departures=None, config=None, digest="abc"):
    path = root / (experiment or "data") / algo / digest / f"seed_{seed}"
    path.mkdir(parents=True)
    meta = {
        "status": status, "seed": seed, "hash": digest, "algo": algo, "data": "synthetic_leaf", "model": "linear",
        "experiment": experiment, "departures": departures or {}, "sources": [],
    }  # fmt: skip
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "config.yaml").write_text(yaml.safe_dump({"algo": {}, "seed": seed, **(config or {})}))
    metrics = ["mean", "std", "worst30", "mean_weighted", "std_weighted", "worst30_weighted"]
    row = {"round": 9, **{f"accuracy_{m}": mean for m in metrics}, "angle_degrees": 7.0, "kl_uniform": 0.01}
    (path / "rounds.jsonl").write_text(json.dumps({"round": 0}) + "\n" + json.dumps(row) + "\n")
    if status in ("done", "diverged"):
        (path / "DONE").touch()


def test_mean_and_sample_std_over_seeds(tmp_path):
    for seed, value in enumerate((0.90, 0.92, 0.97)):
        write_run(tmp_path, "fedavg", seed, value)
    (table,) = tabulate(ResultStore(tmp_path))
    cell = table.lines[0].cells["accuracy_mean_weighted"]
    assert cell.mean == pytest.approx(93.0)
    assert cell.std == pytest.approx(3.605551275)  # √((9 + 1 + 16) / 2)
    assert cell.paper.mean == 88.34
    assert cell.difference == pytest.approx(4.66)
    assert table.lines[0].reduced == ()
    text = to_markdown(table)
    assert "93.00 ± 3.61" in text
    assert "88.34 ± 0.55" in text
    assert "+4.66" in text
    rows = [line for line in text.splitlines() if line.startswith("| fedavg")]
    assert len(rows) == 2  # what the paper reports, then everything else
    assert all(row.rstrip(" |").endswith("full") for row in rows)


def test_one_seed_has_no_spread_and_is_reduced(tmp_path):
    write_run(tmp_path, "fedavg", 0, 0.9, departures={"rounds": [1000, 100]})
    (table,) = tabulate(ResultStore(tmp_path))
    assert table.lines[0].cells["accuracy_mean"].std is None
    assert table.lines[0].reduced == ("rounds 100 (paper 1000)", "seeds 1 (paper 3)")
    for text in (to_markdown(table), to_latex(table), to_csv(table)):
        assert "rounds 100 (paper 1000)" in text
        rows = [line for line in text.splitlines() if "fedavg" in line]
        assert rows
        assert all("reduced" in row or "rounds 100" in row for row in rows)  # wherever a number is shown


def test_a_reduced_run_is_marked_where_no_paper_prints_numbers_too(tmp_path):
    """An experiment behind a figure alone; a row at its full setting is not marked."""
    for digest, departures in (("abc", {}), ("xyz", {"rounds": [1000, 9]})):
        rounds = 9 if departures else 1000
        write_run(tmp_path, "fedavg", 0, 0.9, "fafed/figure2_mnist_low", "done", departures, {"rounds": rounds}, digest)
    (table,) = tabulate(ResultStore(tmp_path))
    assert table.known is None
    for text, sign in ((to_markdown(table), "|"), (to_latex(table), "&")):
        full, reduced = (next(x for x in text.splitlines() if f"rounds={n} " in x) for n in (1000, 9))
        assert [x.split(sign)[-1 - (sign == "|")].strip(" \\") for x in (full, reduced)] == ["full", "reduced"]
        assert text.count("rounds 9 (paper 1000)") == 1
    write_run(tmp_path / "own", "fedavg", 0, 0.9, None)
    (table,) = tabulate(ResultStore(tmp_path / "own"))
    assert "status" not in to_markdown(table)


def test_rows_are_in_the_papers_order_and_unknown_methods_follow(tmp_path):
    for algo in ("adafedadam", "fedprox", "fedavg", "qfedavg"):
        write_run(tmp_path, algo, 0, 0.9)
    (table,) = tabulate(ResultStore(tmp_path))
    assert [line.algo for line in table.lines] == ["fedavg", "qfedavg", "adafedadam", "fedprox"]
    assert table.lines[3].cells["accuracy_mean_weighted"].paper is None


def test_runs_that_are_not_done_are_named_and_not_counted(tmp_path):
    write_run(tmp_path, "fedavg", 0, 0.9)
    write_run(tmp_path, "fedavg", 1, 0.1, status="diverged")
    write_run(tmp_path, "fedavg", 2, 0.1, status="failed")
    write_run(tmp_path, "fedprox", 0, 0.1, status="running")
    (table,) = tabulate(ResultStore(tmp_path))
    assert [line.algo for line in table.lines] == ["fedavg"]
    assert table.lines[0].seeds == (0,)
    text = to_markdown(table)
    for note in ("fedavg seed 1: diverged", "fedavg seed 2: failed", "fedprox seed 0: running"):
        assert f"- {note}" in text


def test_settings_of_one_method_are_told_apart(tmp_path):
    for digest, q in (("aaa", 0.1), ("bbb", 1)):
        write_run(tmp_path, "qfedavg", 0, 0.9, None, config={"algo": {"q": q, "L": None}}, digest=digest)
    write_run(tmp_path, "fedavg", 0, 0.9, None, config={"algo": {"server_lr": 1}})
    (table,) = tabulate(ResultStore(tmp_path))
    assert [line.settings for line in table.lines] == ["", "algo.q=0.1", "algo.q=1"]
    assert "paper" not in to_markdown(table)


def test_notes_say_which_rows_are_reduced(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "fedavg", seed, 0.9, config={"rounds": 1000})
        write_run(tmp_path, "fedavg", seed, 0.8, config={"rounds": 9}, digest="xyz", departures={"rounds": [1000, 9]})
    (table,) = tabulate(ResultStore(tmp_path))
    assert "- reduced (fedavg rounds=9): rounds 9 (paper 1000)\n" in to_markdown(table)


def test_a_metric_that_was_not_measured_is_a_dash():
    assert Cell(()).mean is None
    assert Cell((), None).difference is None


def test_a_row_of_another_table_is_not_set_beside_this_one(tmp_path):
    """Figure 3 sweeps alpha: its runs are as the paper has them, but not those of Table 5, which has alpha 1."""
    for alpha in (1.0, 4.0, 0.3):
        departs = {} if alpha == 1.0 else {"algo.alpha": [1.0, alpha]}
        write_run(
            tmp_path, "adafedadam", 0, 0.9, departures=departs, config={"algo": {"alpha": alpha}}, digest=f"{alpha}"
        )
    (table,) = tabulate(ResultStore(tmp_path))
    found = {line.settings: (line.cells["accuracy_mean_weighted"].paper, line.reduced) for line in table.lines}
    few = "seeds 1 (paper 3)"
    assert found == {
        "algo.alpha=1": (Reported(94.18, 0.45), (few,)),
        "algo.alpha=4": (None, (few,)),
        "algo.alpha=0.3": (Reported(94.18, 0.45), ("algo.alpha 0.3 (paper 1)", few)),
    }


def test_lossy_data_are_named(tmp_path):
    write_run(tmp_path, "fedavg", 0, 0.9)
    (meta,) = tmp_path.rglob("meta.json")
    facts = json.loads(meta.read_text())
    meta.write_text(json.dumps(facts | {"sources": ["CIFAR-10: not the official files (md5 differs)"]}))
    assert ", data: CIFAR-10: not the official files (md5 differs)" in summary(list(ResultStore(tmp_path)))
    meta.write_text(json.dumps(facts | {"sources": ["mine: not the official files"], "experiment": None}))
    assert "\n- mine: not the official files" in summary(list(ResultStore(tmp_path)))


def test_renderers():
    assert markdown(["method", "x"], [["a", "1.0"], ["long", "10.25"]]) == (
        "| method |     x |\n| ------ | ----: |\n| a      |   1.0 |\n| long   | 10.25 |\n"
    )
    tex = latex(["method", "x"], [["a_b", "1 ± 2 %"]])
    assert tex.startswith("\\begin{tabular}{lr}\n\\toprule\nmethod & x \\\\")
    assert r"a\_b & 1 $\pm$ 2 \% \\" in tex
    assert csv_text([{"a": 1}, {"a": 2, "b": "x,y"}]) == 'a,b\n1,\n2,"x,y"\n'


# ---- the papers' numbers


def test_every_setup_of_a_paper_is_an_experiment_and_vice_versa():
    """But for Table 7's first block, which is Table 5's."""
    setups = {s.experiment for p in papers().values() for s in p.setups.values()}
    assert setups <= set(options("experiment"))
    assert set(options("experiment")) - setups == {"smoke", "adafedadam/table7_synthetic"}


def test_presets_and_rows_name_the_same_methods():
    tree, _ = composed(f"experiment={EXPERIMENT}")
    assert list(tree["presets"]) == find_known(EXPERIMENT).algorithms


def test_numbers_are_those_of_the_paper():
    """Spot checks against the printed Tables 5 and 7; the vanilla block of Table 7 repeats Table 5."""
    five, seven = find_known(EXPERIMENT), find_known("adafedadam/table7_synthetic")
    assert five.cells == seven.cells
    assert five.seeds == 3
    cell = find_known("adafedadam/table7_synthetic_momentum").cells["adafedadam", "accuracy_mean_weighted"]
    assert (cell.mean, cell.std) == (97.19, 0.11)
    assert find_known("adafedadam/table9_nothing") is None
