"""Tables, figures and statement for a paper: bold numbers, marks, and the sentences."""

import re
from statistics import mean, stdev

import pytest
import yaml
from fake_runs import ROUNDS, change_facts, change_last_round, fake, fake_run, measured
from report_runs import call, call_report, files, leave_runs

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
TWO = ("fedavg", "qfedavg")
FIGURES = {f"figures/{metric}_1.pdf" for metric in METRICS}
NAMES = {"main.tex", "tables/setting.tex", "tables/values.tex", "statement.tex", *FIGURES}


def with_numbers(root, numbers):
    """Runs of methods whose mean accuracy at the last round is given per seed."""
    for algo, values in numbers.items():
        for seed, value in enumerate(values):
            (path,) = fake(root, None, algo, seeds=(seed,))
            change_last_round(path, accuracy_mean=value)
    return list(Results(root))


def cells(runs, baseline=None, metric="accuracy_mean"):
    compared = compare(runs, "algo", metric, baseline)
    return marked(compared, compared.blocks[0])


def manuscript(root, runs):
    """The LaTeX files of a manuscript by name."""
    write_manuscript(runs, root, [compare(runs, "algo", METRICS[0])])
    return {path.name: path.read_text() for path in root.rglob("*.tex")}


# ---- marks


def test_the_best_mean_is_bold_and_methods_that_are_certainly_worse_are_marked(tmp_path):
    """Six seeds, two methods: all differences have one sign, so that p = 2 / 2^6 = 0.03125."""
    better = [0.80, 0.81, 0.82, 0.83, 0.84, 0.85]
    worse = [0.70, 0.71, 0.72, 0.73, 0.74, 0.75]
    runs = with_numbers(tmp_path, {"fedavg": better, "qfedavg": worse})
    spread = f"{100 * stdev(better):.2f}"
    shown = cells(runs)
    assert shown["fedavg"].text == f"82.50 ± {spread}"
    assert shown["fedavg"].best
    assert shown["qfedavg"].text == f"72.50 ± {spread}{WORSE}"
    assert not shown["qfedavg"].best
    against_worse = cells(runs, "qfedavg")
    assert against_worse["fedavg"].text.endswith(BETTER)
    assert against_worse["qfedavg"].text == f"72.50 ± {spread}"
    # a metric without a direction has no best
    assert not any(cell.best for cell in cells(runs, metric="update_norm").values())


def test_five_seeds_mark_nothing_and_equal_means_are_both_bold(tmp_path):
    """With five seeds no p is below 2 / 2^5 = 0.0625."""
    values = [0.5, 0.6, 0.7, 0.8, 0.9]
    low = [0.3, 0.4, 0.5, 0.6, 0.7]
    numbers = {"fedavg": values, "qfedavg": values[::-1], "fedprox": low}
    shown = cells(with_numbers(tmp_path, numbers))
    assert [cell.best for cell in shown.values()] == [True, False, True]
    assert not [cell for cell in shown.values() if cell.text.endswith((BETTER, WORSE))]


# ---- files


@pytest.mark.slow
def test_the_command_writes_everything_and_the_same_again(tmp_path):
    root = tmp_path / "runs"
    leave_runs(root, *TWO, seeds=SEEDS)
    status, said, _ = call_report(root, "--latex")
    assert status == 0
    assert set(said.splitlines()) == {f"written: {root / 'paper' / name}" for name in NAMES}
    first = files(root / "paper")
    assert set(first) == NAMES
    for name in FIGURES:
        assert first[name].startswith(b"%PDF")
        assert b"/Type3" not in first[name]
    text = first["tables/setting.tex"].decode()
    values = [
        100
        * measured(
            None,
            "fedavg",
            {},
            seed,
            "accuracy_mean",
        )
        for seed in SEEDS
    ]
    assert rf"{mean(values):.2f} $\pm$ {stdev(values):.2f}" in text
    assert text.count(r"\\") == 3  # heading and methods
    call_report(root, "--latex")
    assert files(root / "paper") == first


def test_keys_that_distinguish_settings_are_in_words(tmp_path):
    for clients in (8, 16):
        keys = {"data.clients": clients}
        runs = leave_runs(tmp_path / "runs", *TWO, keys=keys, seeds=SEEDS)
    tex = manuscript(tmp_path / "out", runs)
    assert "data.clients=" not in "".join(tex.values())
    few = r"synthetic\_leaf, 8 clients"
    many = r"synthetic\_leaf, 16 clients"
    assert rf"Method & {many} & {few} \\" in tex["all_accuracy_mean.tex"]
    assert f"accuracy on {few} at the last round" in tex["setting_2.tex"]


def test_the_values_of_all_methods_are_listed_by_setting(tmp_path):
    """Keys without a value are left out."""
    for clients in (8, 16):
        for mu in (0.1, clients):
            keys = {"data.clients": clients, "local.lr": 0.5, "algo.mu": mu, "algo.other": None}
            runs = leave_runs(tmp_path / "runs", "fedprox", keys=keys, seeds=(0,))
    table = manuscript(tmp_path / "out", runs)["values.tex"]
    rows = [line.removesuffix(r" \\") for line in table.splitlines() if line.endswith(r"\\")]
    few, many = (rf"synthetic\_leaf, {clients} clients" for clients in (8, 16))
    values = "local learning rate 0.5, mu="
    assert sorted(row.split(" & ") for row in rows[1:]) == sorted(
        [setting, "FedProx", f"{values}{mu}"]
        for setting, mu in ((few, 0.1), (few, 8), (many, 0.1), (many, 16))
    )


LABELS = """
qfedavg: q-FedAvg
qfedavgm: qfedavgm
qfedavg algo.q=1: q-FedAvg (q=1)
algo.q=1: q=1
adafedadam/table5_synthetic, term: Synthetic, vanilla SGD, TERM
toy data.clients=8 local.lr=0.1 data.source.sizes=[1,2] local.batch_size=full:
  toy (8 clients, local learning rate 0.1, sizes=[1,2], batch size full)
CIFAR-10, dirichlet (alpha=0.5, min=3), 16 clients:
  CIFAR-10, dirichlet (alpha=0.5, min=3), 16 clients
the proximal term: the proximal term
"": ""
"""


@pytest.mark.parametrize(("label", "printed"), yaml.safe_load(LABELS).items())
def test_a_label_in_print_has_names_of_papers_and_keys_in_words(label, printed):
    assert printed_label(label) == printed


def test_sentences_have_no_names_in_print(tmp_path):
    """A method is named term, and a note about the proximal term keeps its word."""
    note = "the proximal term was not part of the published data"
    leave_runs(tmp_path / "runs", "fedprox", "term", seeds=SEEDS)
    change_facts(tmp_path / "runs", unofficial=[note])
    tex = manuscript(tmp_path / "out", list(Results(tmp_path / "runs")))
    table = tex["setting.tex"]
    assert re.findall(r"^(FedProx|TERM) & ", table, re.M) == ["FedProx", "TERM"]
    assert rf"\footnotesize {note}." in table
    assert f"\\item {note}\n" in tex["statement.tex"]


def test_the_statement_counts_runs_and_names_the_licence(tmp_path):
    source = {
        "data.source._target_": "fedbench.data.sources.fmnist.load",
        "data.seed": 3,
        "data.split": 0.75,
    }
    fake(tmp_path, None, "fedavg", seeds=(0, 1), preset=source)
    fake_run(tmp_path, None, "qfedavg", status="failed")
    fake(
        tmp_path,
        None,
        "fedprox",
        seeds=(2, 3),
        preset={"tuned_on": [1000, 1001]},
    )
    text = statement(list(Results(tmp_path)), 0.05)
    spent = [
        measured(None, algo, {}, seed, f"seconds_{part}", ROUNDS[-1])
        for algo, seed in (
            ("fedavg", 0),
            ("fedavg", 1),
            ("fedprox", 2),
            ("fedprox", 3),
        )
        for part in ("train", "eval")
    ]
    for words in (
        r"\item 5 runs: 4 done, 1 failed",
        "The seeds are 0 and 1 (FedAvg) or 2 and 3 (FedProx)",
        "The data are Fashion-MNIST (FedAvg)",
        r"The split is 75 \% of each client's examples for training and the others for testing, "
        "drawn once with seed 3",
        r"synthetic\_leaf: licence: MIT; reference: Xiao, Rasul, Vollgraf",
        "with the tuning seeds [1000,1001], which no result has (FedProx)",
        "not recorded, and to be added (FedAvg)",
        f"{sum(spent) / 3600:.3g} hours of training and evaluation",
    ):
        assert words in text


@pytest.mark.slow
def test_only_files_of_an_earlier_call_are_replaced(tmp_path):
    leave_runs(tmp_path / "runs", *TWO, seeds=SEEDS)
    out = tmp_path / "out"
    words = ("report", str(tmp_path / "runs"), "--latex", "--into", str(out))
    assert call(*words)[0] == 0
    own = {"mine.tex", "tables/mine.tex", "figures/mine.pdf"}
    for name in own:
        (out / name).write_text("mine")
    assert call(*words, "--metric", "test_loss")[0] == 0
    assert set(files(out)) == (NAMES - FIGURES) | own | {"figures/test_loss_1.pdf"}
    (out / "main.tex").write_text("my paper")
    before = files(out)
    status, _, error = call(*words)
    assert status == 2
    assert "main.tex was not written by fedbench; name another directory with --into" in error
    assert files(out) == before
