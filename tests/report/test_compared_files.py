"""Comparisons in files: the numbers of the text in full precision."""

from statistics import mean, stdev

import pytest
from fake_runs import fake, measured
from table_readers import read_csv
from test_write import call, files

SEEDS = range(7)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A directory of runs, what the command prints without and with ``--into``, and the directory that it writes."""
    root = tmp_path_factory.mktemp("runs")
    for algo in ("fedavg", "qfedavg"):
        fake(root / "results", None, algo, seeds=SEEDS)
    words = ("report", str(root / "results"), "--compare", "algo", "--metric", "test_loss")
    (_, plain, _), (status, said, _) = call(*words), call(*words, "--into", str(root / "out"))
    assert status == 0
    return root, plain, said


def losses(algo):
    return [measured(None, algo, {}, s, "test_loss") for s in SEEDS]


def test_the_text_is_the_same_and_the_files_are_named(written):
    root, plain, said = written
    names = ["compared.md", "means.csv", "differences.csv", "setting.tex"]
    listed = "".join(f"written: {root / 'out' / name}\n" for name in names)
    assert said == f"{plain}\n{listed}"
    found = files(root / "out")
    assert sorted(found) == sorted(names)
    assert found["compared.md"].decode() == plain


def test_means_in_full_precision_with_the_best_marked(written):
    rows = {r["method"]: r for r in read_csv((written[0] / "out" / "means.csv").read_text())}
    means = {algo: mean(losses(algo)) for algo in ("fedavg", "qfedavg")}
    for algo, value in means.items():
        row = rows[algo]
        assert (int(row["seeds"]), row["metric"]) == (7, "test_loss")
        assert (float(row["mean"]), float(row["std"])) == pytest.approx((value, stdev(losses(algo))), rel=1e-12)
        assert bool(int(row["best"])) is (value == min(means.values()))  # of a loss


def test_differences_have_the_exact_p(written):
    """p counts the sign assignments of the seven differences whose sum is as far from 0 as the observed one."""
    (row,) = read_csv((written[0] / "out" / "differences.csv").read_text())
    d = [a - b for a, b in zip(losses("fedavg"), losses("qfedavg"), strict=True)]
    assert float(row["difference"]) == pytest.approx(mean(d), rel=1e-12)
    sums = [sum(v if bits >> k & 1 else -v for k, v in enumerate(d)) for bits in range(2**7)]
    p = sum(abs(s) >= abs(sum(d)) - 1e-9 for s in sums) / 2**7
    assert float(row["p"]) == float(row["p_holm"]) == p
    assert row["verdict"] == ("undecided" if p > 0.05 else "better" if mean(d) < 0 else "worse")
