"""Tables, figures and statement for a paper: what is bold, what is marked, and what the statement says."""

import json
import re
from statistics import mean, stdev

import pytest
from fake_runs import ROUNDS, edit, fake, measured, seal
from report_runs import call, files
from tools import ROOT

from fedbench.analysis.compare import compare
from fedbench.reports.manuscript import (
    BETTER,
    METRICS,
    WORSE,
    marked,
    printed_label,
    statement,
    write_manuscript,
)
from fedbench.runs.results import Results

SEEDS = range(6)
NAMES = ["main.tex", "tables/setting.tex", *(f"figures/{m}_1.pdf" for m in METRICS)]
NAMES += ["statement.tex"]


def with_numbers(root, numbers):
    """Runs of methods whose mean accuracy at the last round is given per seed."""
    for algo, values in numbers.items():
        for path, value in zip(
            fake(root, None, algo, seeds=range(len(values))), values, strict=True
        ):
            rows = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
            rows[-1]["accuracy_mean"] = value
            (path / "rounds.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
            seal(path)
    return list(Results(root))


def cells(runs, baseline=None):
    compared = compare(runs, "algo", "accuracy_mean", baseline)
    return marked(compared, compared.blocks[0])


def test_the_best_mean_is_bold_and_what_is_worse_with_certainty_is_marked(tmp_path):
    """Six seeds, two methods: all differences have one sign, so that p = 2 / 2^6 = 0.03125."""
    better = [0.80, 0.81, 0.82, 0.83, 0.84, 0.85]
    runs = with_numbers(tmp_path, {"fedavg": better, "qfedavg": [v - 0.1 for v in better]})
    spread = f"{100 * stdev(better):.2f}"
    found = cells(runs)
    assert {name: (cell.text, cell.best) for name, cell in found.items()} == {
        "fedavg": (f"82.50 ± {spread}", True),
        "qfedavg": (f"72.50 ± {spread}{WORSE}", False),
    }
    against_worse = cells(runs, "qfedavg")
    assert against_worse["fedavg"].text.endswith(BETTER)
    assert against_worse["qfedavg"].text == f"72.50 ± {spread}"


def test_five_seeds_mark_nothing_and_equal_means_are_both_bold(tmp_path):
    """With five seeds no p is below 2 / 2^5 = 0.0625."""
    values = [0.5, 0.6, 0.7, 0.8, 0.9]
    runs = with_numbers(
        tmp_path, {"fedavg": values, "qfedavg": values[::-1], "fedprox": [v - 0.2 for v in values]}
    )
    found = cells(runs)
    assert [cell.best for cell in found.values()] == [True, False, True]
    assert not any(mark in cell.text for cell in found.values() for mark in (BETTER, WORSE))


def test_a_metric_without_a_direction_has_no_best(tmp_path):
    runs = with_numbers(tmp_path, {"fedavg": [0.5] * 6, "qfedavg": [0.6] * 6})
    compared = compare(runs, "algo", "update_norm")
    assert not any(cell.best for cell in marked(compared, compared.blocks[0]).values())


def test_the_command_writes_everything_and_the_same_again(tmp_path):
    root = tmp_path / "runs"
    for algo in ("fedavg", "qfedavg"):
        fake(root, None, algo, seeds=SEEDS)
    status, said, _ = call("report", str(root), "--latex")
    assert status == 0
    assert said.splitlines() == [f"written: {root / 'paper' / name}" for name in NAMES]
    first = files(root / "paper")
    assert set(first) == set(NAMES)
    assert all(
        first[name].startswith(b"%PDF") and b"/Type3" not in first[name]
        for name in NAMES
        if "pdf" in name
    )
    text = first["tables/setting.tex"].decode()
    values = [100 * measured(None, "fedavg", {}, s, "accuracy_mean") for s in SEEDS]
    assert rf"{mean(values):.2f} $\pm$ {stdev(values):.2f}" in text
    assert text.count(r"\\") == 3  # heading and methods
    assert text.count("{") == text.count("}")
    assert call("report", str(root), "--latex")[0] == 0
    assert files(root / "paper") == first


def test_several_settings_have_a_table_each_and_one_per_metric(tmp_path):
    for algo in ("fedavg", "qfedavg"):
        fake(tmp_path / "runs", None, algo, seeds=SEEDS)
        fake(tmp_path / "runs", "smoke", algo, seeds=SEEDS)
    runs = list(Results(tmp_path / "runs"))
    names = write_manuscript(runs, tmp_path / "out", [compare(runs, "algo", METRICS[0])])
    assert [n for n in names if n.startswith("tables/")] == [
        "tables/setting_1.tex", "tables/setting_2.tex", "tables/all_accuracy_mean.tex",
    ]  # fmt: skip
    whole = (tmp_path / "out" / "tables" / "all_accuracy_mean.tex").read_text()
    assert r"Method & smoke: synthetic\_leaf & synthetic\_leaf \\" in whole
    alone = (tmp_path / "out" / "tables" / "setting_1.tex").read_text()
    row = re.search(r"^FedAvg & (.*) \\\\$", alone, re.M)[1]
    assert f"FedAvg & {row} & " in whole


def test_keys_that_distinguish_settings_are_in_words(tmp_path):
    for algo in ("fedavg", "qfedavg"):
        for clients in (8, 16):
            fake(tmp_path / "runs", None, algo, keys={"data.clients": clients}, seeds=SEEDS)
    runs = list(Results(tmp_path / "runs"))
    write_manuscript(runs, tmp_path / "out", [compare(runs, "algo", METRICS[0])])
    tex = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*.tex")}
    assert not [name for name, text in tex.items() if "data.clients=" in text]
    name = r"synthetic\_leaf, {} clients"
    assert rf"Method & {name.format(16)} & {name.format(8)} \\" in tex["all_accuracy_mean.tex"]
    assert f"accuracy on {name.format(8)} at the last round" in tex["setting_2.tex"]


@pytest.mark.parametrize(
    ("label", "printed"),
    [
        ("qfedavg", "q-FedAvg"), ("qfedavgm", "qfedavgm"), ("qfedavg algo.q=1", "q-FedAvg (q=1)"), ("algo.q=1", "q=1"),
        ("adafedadam/table5_synthetic, term", "Synthetic, vanilla SGD, TERM"),
        ("synthetic_leaf data.clients=8 local.lr=0.1 data.source.sizes=[1,2] local.batch_size=full",
         "synthetic_leaf (8 clients, local learning rate 0.1, sizes=[1,2], batch size full)"),
        ("CIFAR-10, dirichlet (alpha=0.5, min=3), 16 clients", "CIFAR-10, dirichlet (alpha=0.5, min=3), 16 clients"),
        ("the proximal term", "the proximal term"), ("", ""),
    ],
)  # fmt: skip
def test_a_label_in_print_has_names_of_papers_and_keys_in_words(label, printed):
    assert printed_label(label) == printed


def test_sentences_have_no_names_in_print(tmp_path):
    """A method is named term, and a note about the proximal term keeps its word."""
    note = "the proximal term was not part of the published data"
    for algo in ("fedprox", "term"):
        for path in fake(tmp_path / "runs", None, algo, seeds=SEEDS):
            edit(
                path / "meta.json",
                lambda text: json.dumps(json.loads(text) | {"unofficial": [note]}),
            )
    runs = list(Results(tmp_path / "runs"))
    write_manuscript(runs, tmp_path / "out", [compare(runs, "algo", METRICS[0])])
    table = (tmp_path / "out" / "tables" / "setting.tex").read_text()
    assert re.findall(r"^(FedProx|TERM) & ", table, re.M) == ["FedProx", "TERM"]
    assert rf"\footnotesize {note}." in table
    assert (
        rf"\item {note}\n".replace(r"\n", "\n") in (tmp_path / "out" / "statement.tex").read_text()
    )


def test_the_statement_counts_runs_and_names_the_licence(tmp_path):
    source = {
        "data.source._target_": "fedbench.data.sources.fmnist.load",
        "data.seed": 3,
        "data.split": 0.75,
    }
    fake(tmp_path, None, "fedavg", seeds=(0, 1), preset=source)
    fake(tmp_path, None, "qfedavg", seeds=(0,), status="failed")
    fake(tmp_path, None, "fedprox", seeds=(2, 3), preset={"tuned_on": [1000, 1001]})
    runs = list(Results(tmp_path))
    text = statement(runs, 0.05)
    assert r"\item 5 runs: 4 done, 1 failed" in text
    assert "The seeds are 0 and 1 (FedAvg) or 2 and 3 (FedProx), by setting" in text
    assert "The data are Fashion-MNIST (FedAvg)" in text
    split = r"75 \% of each client's examples for training and the others for testing, drawn once with seed 3"
    assert f"The split is {split}" in text
    assert r"synthetic\_leaf: licence: MIT; reference: Xiao, Rasul, Vollgraf" in text
    assert (
        "by validation examples, with the tuning seeds [1000,1001], which no result has (FedProx)"
        in text
    )
    assert "not recorded, and to be added (FedAvg)" in text
    spent = [
        measured(None, a, {}, s, f"seconds_{part}", ROUNDS[-1])
        for a, seeds in (("fedavg", (0, 1)), ("fedprox", (2, 3)))
        for s in seeds
        for part in ("train", "eval")
    ]
    assert f"{sum(spent) / 3600:.3g} hours of training and evaluation" in text


def test_only_files_of_an_earlier_call_are_replaced(tmp_path):
    for algo in ("fedavg", "qfedavg"):
        fake(tmp_path / "runs", None, algo, seeds=SEEDS)
    words = ("report", str(tmp_path / "runs"), "--latex", "--into", str(tmp_path / "out"))
    assert call(*words)[0] == 0
    own = ("mine.tex", "tables/mine.tex", "figures/mine.pdf")
    for name in own:
        (tmp_path / "out" / name).write_text("mine")
    assert call(*words, "--metric", "test_loss")[0] == 0
    kept = {n for n in NAMES if n.startswith("figures")}
    assert set(files(tmp_path / "out")) == {*NAMES, *own, "figures/test_loss_1.pdf"} - kept
    (tmp_path / "out" / "main.tex").write_text("my paper")
    before = files(tmp_path / "out")
    status, _, error = call(*words)
    assert (status, files(tmp_path / "out")) == (2, before)
    assert "main.tex was not written by fedbench; name another directory with --into" in error


def test_a_metric_that_was_not_measured_is_refused(tmp_path):
    for algo in ("fedavg", "qfedavg"):
        fake(tmp_path / "runs", None, algo, seeds=(0, 1))
    status, _, error = call("report", str(tmp_path / "runs"), "--latex", "--metric", "nonsense")
    assert (status, "nonsense" in error) == (2, True)
    assert not (tmp_path / "runs" / "paper").exists()


def test_the_page_of_the_documentation_names_the_files():
    text = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    for name in ("main.tex", "tables/setting.tex", "statement.tex"):
        assert f"`{name}`" in text
