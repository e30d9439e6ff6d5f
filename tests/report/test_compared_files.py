"""Comparisons on the page and in files: the numbers of the text, in files in full precision."""

import re
import shutil
from statistics import mean, stdev

import pytest
from fake_runs import fake_run, measured
from report_runs import call_report, files, leave_runs, text_of

SEEDS = range(7)
WORDS = ("--compare", "algo", "--metric", "test_loss")


def losses(algo):
    return [measured(None, algo, {}, seed, "test_loss") for seed in SEEDS]


MEANS = {algo: mean(losses(algo)) for algo in ("fedavg", "qfedavg")}
BEST = min(MEANS, key=MEANS.get)
DIFFERENCE = MEANS["fedavg"] - MEANS["qfedavg"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of two methods, with a report below them that has a comparison."""
    root = tmp_path_factory.mktemp("runs") / "results"
    leave_runs(root, *MEANS, seeds=SEEDS)
    assert call_report(root, *WORDS)[0] == 0
    return root


@pytest.fixture(scope="module")
def compared(runs):
    return runs / "report" / "compared"


def test_the_comparison_is_printed_and_in_files(runs, compared, tmp_path):
    out = tmp_path / "out"
    status, said, _ = call_report(
        runs,
        *WORDS,
        "--into",
        out,
    )
    assert status == 0
    written = files(out / "compared")
    assert set(written) == {"compared.md", "differences.csv", "means.csv", "setting.tex"}
    assert said == f"{written['compared.md'].decode()}\nwritten: {out / 'index.html'}\n"
    assert written == files(compared)


def test_the_comparison_is_on_the_page(runs):
    """Means with the best one marked, and differences, to the digits of the text."""
    page = (runs / "report" / "index.html").read_text()
    means, differences = re.findall(r'<table class="data free">(.*?)</table>', page, re.S)
    for algo, value in MEANS.items():
        mark = "best" if algo == BEST else ""
        spread = f"{stdev(losses(algo)):.4f}"
        assert f"{algo} 7 {mark}{value:.4f} ± {spread}" in shown(means)
    assert f"fedavg qfedavg 7 {DIFFERENCE:+.4f}" in shown(differences)


def shown(table):
    return text_of(re.sub(r"</svg>|&#8288;|</?span[^>]*>", "", table))


@pytest.mark.slow
def test_a_method_with_a_run_that_diverged_is_not_the_best(runs, tmp_path):
    """Its mean leaves out its worst run."""
    shutil.copytree(runs, tmp_path / "results")
    root = tmp_path / "results"
    (run,) = (root / "synthetic_leaf" / BEST).glob("*/seed_0")
    shutil.rmtree(run)
    fake_run(root, None, BEST, status="diverged")
    name = {"fedavg": "FedAvg", "qfedavg": "q-FedAvg"}[BEST]
    table = root / "report" / "compared" / "setting.tex"
    assert f"{name} & \\textbf" in table.read_text()
    assert call_report(root, *WORDS)[0] == 0
    assert f"{name} & \\textbf" not in table.read_text()
