"""``fedbench reproduce`` in a results directory with published reports: their runs are reused."""

import csv
import shutil

import pytest
from fake_runs import fake
from report_runs import call
from reproduced import SMOKE, elsewhere, entries, models  # noqa: F401 (a fixture)

from fedbench.reports.write import write_report
from fedbench.reproduce.plan import locate, plan

pytestmark = pytest.mark.whole

TABLE = "report/tables/adafedadam_table4.csv"
HOME = "published/adafedadam"


@pytest.fixture(scope="module")
def shelf(done, tmp_path_factory):
    """The published report of the three runs."""
    shelf = tmp_path_factory.mktemp("shelf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
        write_report(done.results, shelf, "adafedadam")
    return shelf


@pytest.fixture
def clone(shelf, tmp_path, no_figures):
    """A results directory with the published report alone."""
    shutil.copytree(shelf, tmp_path / "results" / HOME)
    return tmp_path / "results"


def row(out, name="adafedadam/table4"):
    """A line of a plan: runs, done, and the first word of the time."""
    (words,) = [line.split() for line in out.splitlines() if line.startswith(name)]
    return words[1:4]


def test_a_plan_counts_published_runs_as_done(clone):
    before = sorted(clone.rglob("*"))
    status, out, err = call(*SMOKE, "--plan")
    assert status == 0
    assert err == ""
    assert row(out) == ["3", "3", "0"]
    assert sorted(clone.rglob("*")) == before
    shutil.rmtree(clone / "published")
    assert row(call(*SMOKE, "--plan")[1])[:2] == ["3", "0"]


def test_published_runs_are_not_made_again_and_are_in_the_report(clone, done, no_training):
    status, _, err = call(*SMOKE)
    assert status == 0
    assert err == ""
    assert models(clone) == {}
    assert {p.name for p in clone.iterdir()} == {"published", "report"}
    tables = clone / "report" / "tables"
    for file in (done.results / "report" / "tables").iterdir():
        assert (tables / file.name).read_bytes() == file.read_bytes()
    page = (clone / "report" / "index.html").read_text()
    rows = 3 + 1 + 3  # of Tables 4, 5 and 7
    assert page.count('href="../published/adafedadam/"') == rows


def test_only_what_is_not_published_is_made(clone):
    """A second seed; the report has both."""
    assert row(call(*SMOKE, "--plan", "--seeds", "2")[1])[:2] == ["6", "3"]
    assert call(*SMOKE, "--seeds", "2")[0] == 0
    assert {p.name for p in clone.rglob("seed_*")} == {"seed_1"}
    assert [e[2:] for e in entries(clone)] == [(1, "done")] * 3
    rows = csv.DictReader((clone / TABLE).read_text().splitlines())
    assert [r["seeds"] for r in rows] == ["2"] * 3


# ---- data


HETERO = "adafedadam/table2_cifar10_hetero"
TABLE2 = ["reproduce", "adafedadam/table2", "--profile", "full", "--experiment", HETERO]
NO_DATA = ["data_dir=nothing", "data.download=false"]


@pytest.fixture
def cifar(tmp_path, no_figures):
    """The runs of some rows on CIFAR-10 where fedbench looks for them, published, and no data."""
    jobs = locate(plan(["adafedadam/table2"], "full"), ["results_dir=runs"])
    runs = [job for job in jobs if job.experiment == HETERO]
    for run in runs:
        (path,) = fake(
            tmp_path / "made",
            HETERO,
            run.algo,
            run.keys,
            seeds=(run.seed,),
        )
        run.path.parent.mkdir(parents=True, exist_ok=True)
        path.rename(run.path)
    write_report(tmp_path / "runs", tmp_path / "results" / HOME, "adafedadam")
    return runs


def test_published_runs_need_no_data(cifar, tmp_path):
    status, out, err = call(*TABLE2, *NO_DATA, "--plan")
    assert status == 0
    assert err == ""
    assert row(out, "adafedadam/table2") == [str(len(cifar)), str(len(cifar)), "0"]
    assert "missing data" not in out
    status, out, err = call(*TABLE2, *NO_DATA)
    assert status == 0
    assert err == ""
    assert "not finished" not in out
    shutil.rmtree(tmp_path / "results" / "published")
    assert "missing data: cifar-10-python.tar.gz" in call(*TABLE2, *NO_DATA, "--plan")[1]


def test_a_row_that_is_finished_at_the_papers_settings_needs_no_reduced_runs(cifar, tmp_path):
    """Five methods: all three seeds of the paper are published, then one run less."""

    def planned(*more):
        _, out, _ = call(
            *TABLE2[:2],
            "--experiment",
            HETERO,
            *NO_DATA,
            "--plan",
            *more,
        )
        return row(out, "adafedadam/table2")

    assert planned() == ["15", "15", "0"]
    assert planned("--seeds", "4")[:2] == ["20", "0"]
    assert planned("--profile", "smoke")[:2] == ["5", "0"]
    shutil.rmtree(cifar[0].path)
    write_report(tmp_path / "runs", tmp_path / "results" / HOME, "adafedadam")
    assert planned()[:2] == ["22", "12"]  # ten reduced ones
