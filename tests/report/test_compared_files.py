"""Comparisons on the page and in files: the numbers of the text, in files in full precision."""

import re
import shutil
from statistics import mean, stdev

import pytest
from fake_runs import fake, measured
from report_runs import call, files
from table_readers import read_csv

SEEDS = range(7)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A report with a comparison below its runs, what the command prints, and the same report in another place."""
    root = tmp_path_factory.mktemp("runs")
    for algo in ("fedavg", "qfedavg"):
        fake(root / "results", None, algo, seeds=SEEDS)
    words = ("report", str(root / "results"), "--compare", "algo", "--metric", "test_loss")
    (first, below, _), (status, said, _) = call(*words), call(*words, "--into", str(root / "out"))
    assert (first, status) == (0, 0)
    return root, below, said


def free_tables(text):
    """The rows of the tables of a comparison on a page, as lists of what their cells show."""
    tables = re.findall(r'<table class="data free">.*?<tbody>(.*?)</tbody>', text, re.S)
    rows = [re.findall(r"<tr.*?</tr>", table, re.S) for table in tables]
    cells = [
        [re.findall(r"<(?:td|th)\b[^>]*>(.*?)</(?:td|th)>", row, re.S) for row in part]
        for part in rows
    ]
    return [
        [[re.sub(r"<[^>]*>|&#8288;", "", c).strip() for c in row] for row in part] for part in cells
    ]


def losses(algo):
    return [measured(None, algo, {}, s, "test_loss") for s in SEEDS]


def test_the_comparison_is_printed_and_in_files(written):
    root, below, said = written
    text = below.removesuffix(f"\nwritten: {root / 'results' / 'report' / 'index.html'}\n")
    assert said == f"{text}\nwritten: {root / 'out' / 'index.html'}\n"
    found = files(root / "out" / "compared")
    assert sorted(found) == ["compared.md", "differences.csv", "means.csv", "setting.tex"]
    assert found["compared.md"].decode() == text
    assert files(root / "results" / "report" / "compared") == found


def test_the_comparison_is_on_the_page(written):
    """Means with the best one marked, and differences, to the digits of the text."""
    means, differences = free_tables((written[0] / "out" / "index.html").read_text())
    best = min(("fedavg", "qfedavg"), key=lambda algo: mean(losses(algo)))
    for algo, (name, seeds, value) in zip(("fedavg", "qfedavg"), means, strict=True):
        marked = "best" if algo == best else ""
        assert (name, seeds) == (algo, "7")
        assert (
            value
            == f"{marked}{mean(losses(algo)):.4f} ±\N{NO-BREAK SPACE}{stdev(losses(algo)):.4f}"
        )
    ((first, minus, seeds, difference, *_),) = differences
    d = mean(a - b for a, b in zip(losses("fedavg"), losses("qfedavg"), strict=True))
    assert (first, minus, seeds, difference) == ("fedavg", "qfedavg", "7", f"{d:+.4f}")


def test_equal_runs_give_equal_bytes(written):
    root = written[0]
    words = (
        "report",
        str(root / "results"),
        "--compare",
        "algo",
        "--metric",
        "test_loss",
        "--into",
        str(root / "again"),
    )
    call(*words)
    assert files(root / "again") == files(root / "out")


def test_a_report_without_a_comparison_has_none_of_an_earlier_one(written, tmp_path):
    shutil.copytree(written[0] / "results", tmp_path / "results")
    call("report", str(tmp_path / "results"))
    assert not (tmp_path / "results" / "report" / "compared").exists()
    assert "Comparison" not in (tmp_path / "results" / "report" / "index.html").read_text()


def test_a_method_with_a_run_that_diverged_is_not_the_best(tmp_path):
    """Its mean leaves out its worst run."""
    for algo in ("fedavg", "qfedavg"):
        fake(tmp_path, None, algo, seeds=SEEDS)
    words = ("report", str(tmp_path), "--compare", "algo", "--metric", "test_loss")
    assert call(*words)[0] == 0
    file = tmp_path / "report" / "compared" / "setting.tex"
    (best,) = bold(file)
    (run,) = (tmp_path / "synthetic_leaf" / best).glob("*/seed_0")
    shutil.rmtree(run)
    fake(tmp_path, None, best, seeds=[0], status="diverged")
    assert call(*words)[0] == 0
    assert best not in bold(file)


def bold(file):
    """The methods whose number is bold, by their names in the configuration."""
    found = re.findall(r"^(\S+) & \\textbf", file.read_text(), re.M)
    return [name.lower().replace("-", "") for name in found]


def test_means_in_full_precision(written):
    rows = {
        r["method"]: r
        for r in read_csv((written[0] / "out" / "compared" / "means.csv").read_text())
    }
    means = {algo: mean(losses(algo)) for algo in ("fedavg", "qfedavg")}
    for algo, value in means.items():
        row = rows[algo]
        assert (int(row["seeds"]), row["table"]) == (7, "synthetic_leaf: test loss")
        found = float(row["test loss"]), float(row["test loss STD"])
        assert found == pytest.approx((value, stdev(losses(algo))), rel=1e-12)


def test_differences_have_the_exact_p(written):
    """p counts the sign assignments of the seven differences whose sum is as far from 0 as the observed one."""
    (row,) = read_csv((written[0] / "out" / "compared" / "differences.csv").read_text())
    d = [a - b for a, b in zip(losses("fedavg"), losses("qfedavg"), strict=True)]
    assert float(row["difference"]) == pytest.approx(mean(d), rel=1e-12)
    sums = [sum(v if bits >> k & 1 else -v for k, v in enumerate(d)) for bits in range(2**7)]
    p = sum(abs(s) >= abs(sum(d)) - 1e-9 for s in sums) / 2**7
    assert float(row["p"]) == float(row["p (Holm)"]) == p
    assert row["verdict"] == ("undecided" if p > 0.05 else "better" if mean(d) < 0 else "worse")
