"""Reports of results directories whose runs are partly, or all, in published reports."""

import re
import shutil

import pandas as pd
import pytest
from fake_runs import fake_row, fake_run
from report_runs import ADAM, MOMENTUM, call_report, differing, files, links_of, rows_of
from test_publish import fill_figures

from fedbench.reports.write import write_report
from fedbench.runs.results import Results

PUBLISHED = ("adafedadam", "adafed", "fedcada")
SPAN = r'<span class="runs".*?</span>'
LINKS = re.compile(SPAN + r'\n?|<a class="to" href="#[^"]*-runs-[^"]*">(.*?)</a>', re.S)


def publish(root, place, paper=None):
    """Publish a report without the figures of papers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
        write_report(root, place / "published" / (paper or "adafedadam"), paper)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Runs behind tables and figures of every kind, all on disk, and their report."""
    root = tmp_path_factory.mktemp("everything") / "results"
    fill_figures(root)
    write_report(root)
    return root


@pytest.fixture(scope="module")
def half(everything, tmp_path_factory):
    """The same results, with every second finished run of three papers in published reports."""
    root = tmp_path_factory.mktemp("half") / "results"
    shutil.copytree(everything, root, ignore=shutil.ignore_patterns("report"))
    for paper in PUBLISHED:
        publish(root, root, paper)
        done = sorted(path.parent for path in (root / paper).rglob("DONE"))
        assert len(done) > 3
        for path in done[::2]:
            shutil.rmtree(path)
    write_report(root)
    return root


@pytest.mark.slow
def test_half_of_the_runs_published_gives_the_report_of_all_on_disk(everything, half):
    """Byte for byte, but for the links of the page."""
    one = files(everything / "report")
    other = files(half / "report")
    assert differing(one, other) == {"index.html"}
    page, again = (
        LINKS.sub(
            r"\1",
            x["index.html"].decode(),
        )
        for x in (one, other)
    )
    assert page == again
    assert "fedbench -m experiment=" in page  # the commands of the rows


@pytest.mark.slow
def test_a_row_links_to_the_runs_that_exist_and_to_the_published_report_of_the_others(half):
    page = (half / "report" / "index.html").read_text()
    spans = re.findall(SPAN, page, re.S)
    links = set(links_of("".join(spans)))
    assert {f"../published/{paper}/" for paper in PUBLISHED} <= links
    assert all((half / "report" / link).is_dir() for link in links)
    assert any(">published/adafedadam</a>" in span and ">1</a>" in span for span in spans)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Table 4 of AdaFedAdam, its runs and its published report."""
    root = tmp_path_factory.mktemp("published")
    for row in ADAM.tables["table4"].rows:
        fake_row(root / "runs", ADAM, row, preset={"algo.alpha": 1.0})
    publish(root / "runs", root / "results")
    return root


@pytest.fixture
def shelf(published, tmp_path, no_figures):
    """A copy of the published report, with its runs in another directory."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    return tmp_path / "results"


def seeds_of_table4(results):
    return [
        row["seeds"] for row in rows_of(results / "report" / "tables" / "adafedadam_table4.csv")
    ]


def paths_of(results):
    """The paths of the runs of a report."""
    return pd.read_parquet(results / "report" / "runs.parquet")["path"].tolist()


def test_the_published_runs_of_a_paper_with_a_run_on_disk_are_reported(shelf):
    fake_run(shelf, MOMENTUM, "fedavg")
    write_report(shelf)
    assert seeds_of_table4(shelf) == ["3"] * 3
    assert len(paths_of(shelf)) == 3 * 3 + 1


def facts(report):
    """The runs of a report and its files; its evidence is divided by the time of writing."""
    shown = {name: x for name, x in files(report).items() if not name.startswith("evidence/")}
    runs = [
        (
            run.path.relative_to(report),
            run.config,
            run.meta,
            run.rounds().to_csv(),
            run.clients().to_csv(),
        )
        for run in Results(report)
    ]
    return shown, runs


def test_the_next_published_report_has_all_runs(shelf):
    """Those on disk, and those of the published report before, which it may replace."""
    for root in (shelf, shelf.parent / "runs"):
        fake_run(root, MOMENTUM, "fedavg")
    publish(shelf.parent / "runs", shelf.parent / "all")
    publish(shelf, shelf, "adafedadam")
    place = "published/adafedadam"
    assert facts(shelf / place) == facts(shelf.parent / "all" / place)


def test_a_paper_without_runs_in_the_directory_is_reported_only_if_it_is_named(shelf):
    fake_run(shelf, "smoke", "fedavg")
    write_report(shelf)
    assert len(paths_of(shelf)) == 1
    assert not (shelf / "report/tables/adafedadam_table4.csv").exists()
    status, _, err = call_report(shelf, "--paper", "adafedadam")
    assert (status, err) == (0, "")
    assert seeds_of_table4(shelf) == ["3"] * 3
    status, _, err = call_report(shelf, "--paper", "fedfa")
    assert status == 2
    assert "contains no runs" in err
