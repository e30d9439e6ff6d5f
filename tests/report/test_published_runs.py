"""Reports of results directories whose runs are partly, or all, in published reports."""

import csv
import re
import shutil

import pandas as pd
import pytest
from fake_runs import fake, fake_row
from report_runs import ADAM, MOMENTUM, call, files
from test_publish import fill_figures

from fedbench.reports.write import write_report
from fedbench.runs.results import Results

PUBLISHED = ("adafedadam", "adafed", "fedcada")
LINKS = re.compile(
    r'<span class="runs".*?</span>\n?|<a class="to" href="#[^"]*-runs-[^"]*">(.*?)</a>', re.S
)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Runs behind tables and figures of every kind, all on disk, and their report."""
    root = tmp_path_factory.mktemp("everything") / "results"
    fill_figures(root)
    write_report(root)
    return root


@pytest.fixture(scope="module")
def half(everything, tmp_path_factory):
    """The same results, with every second finished run of three papers in their published reports only."""
    root = tmp_path_factory.mktemp("half") / "results"
    shutil.copytree(everything, root, ignore=shutil.ignore_patterns("report"))
    for paper in PUBLISHED:
        with pytest.MonkeyPatch.context() as patch:  # their figures are not looked at
            patch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
            write_report(root, root / "published" / paper, paper)
        done = sorted(p.parent for p in (root / paper).rglob("DONE"))
        assert len(done) > 3
        for path in done[::2]:
            shutil.rmtree(path)
    write_report(root)
    return root


@pytest.mark.slow
def test_half_of_the_runs_published_gives_the_report_of_all_on_disk(everything, half):
    """Byte for byte, but for the links of the page."""
    one, other = files(everything / "report"), files(half / "report")
    assert set(one) == set(other)
    assert {name for name in one if one[name] != other[name]} == {"index.html"}
    pages = [LINKS.sub(r"\1", folder["index.html"].decode()) for folder in (one, other)]
    assert pages[0] == pages[1]
    assert "fedbench -m experiment=" in pages[0]  # the commands of the rows


@pytest.mark.slow
def test_a_row_links_to_the_runs_that_exist_and_to_the_published_report_of_the_others(half):
    page = (half / "report" / "index.html").read_text()
    links = re.findall(r'<span class="runs".*?</span>', page, re.S)
    hrefs = {href for link in links for href in re.findall(r'href="([^"]*)"', link)}
    assert {f"../published/{paper}/" for paper in PUBLISHED} <= hrefs
    assert all((half / "report" / href).is_dir() for href in hrefs)
    assert any(">published/adafedadam</a>" in link and ">1</a>" in link for link in links)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Table 4 of AdaFedAdam, its runs and its published report."""
    root = tmp_path_factory.mktemp("published")
    for row in ADAM.tables["table4"].rows:
        fake_row(root / "runs", ADAM, row, preset={"algo.alpha": 1.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
        write_report(root / "runs", root / "results" / "published" / "adafedadam")
    return root


@pytest.fixture
def shelf(published, tmp_path, no_figures):
    """A copy of the published report, with its runs in another directory."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    return tmp_path / "results"


def table4(results):
    rows = list(
        csv.DictReader((results / "report/tables/adafedadam_table4.csv").read_text().splitlines())
    )
    return [row["seeds"] for row in rows]


def test_the_published_runs_of_a_paper_that_is_named_are_reported(shelf):
    write_report(shelf, parts=("adafedadam",))
    assert table4(shelf) == ["3"] * 3
    runs = pd.read_parquet(shelf / "report" / "runs.parquet")
    assert runs["path"].tolist() == [
        r.path.relative_to(shelf.parent / "runs").as_posix() for r in Results(shelf.parent / "runs")
    ]


def test_the_published_runs_of_a_paper_with_a_run_on_disk_are_reported(shelf):
    fake(shelf, MOMENTUM, "fedavg", seeds=(0,))
    write_report(shelf)
    assert table4(shelf) == ["3"] * 3
    assert len(pd.read_parquet(shelf / "report" / "runs.parquet")) == 3 * 3 + 1


def test_the_next_published_report_has_all_runs(shelf):
    """Those on disk, and those of the published report before, which it may replace."""
    fake(shelf, MOMENTUM, "fedavg", seeds=(0,))
    fake(shelf.parent / "runs", MOMENTUM, "fedavg", seeds=(0,))
    write_report(shelf.parent / "runs", shelf.parent / "all")
    write_report(shelf, shelf / "published" / "adafedadam", "adafedadam")
    after, at_once = shelf / "published" / "adafedadam", shelf.parent / "all"
    assert page_files(after) == page_files(at_once)
    assert rows(after) == rows(at_once)


def page_files(report):
    """The files of a report but its evidence, which is divided into files by when they were written."""
    return {
        name: content for name, content in files(report).items() if not name.startswith("evidence/")
    }


def rows(report):
    return [
        (
            run.path.relative_to(report),
            run.config,
            run.meta,
            run.rounds().to_csv(),
            run.clients().to_csv(),
        )
        for run in Results(report)
    ]


def test_a_paper_that_the_directory_has_nothing_of_is_not_reported(shelf):
    """A report of one's own runs does not become one of all papers; a paper that is named is reported."""
    fake(shelf, "smoke", "fedavg", seeds=(0,))
    write_report(shelf)
    assert len(pd.read_parquet(shelf / "report" / "runs.parquet")) == 1
    assert not (shelf / "report/tables/adafedadam_table4.csv").exists()
    status, _, err = call("report", str(shelf), "--paper", "adafedadam")
    assert (status, err) == (0, "")
    assert table4(shelf) == ["3"] * 3
    status, _, err = call("report", str(shelf), "--paper", "fedfa")
    assert status == 2
    assert "contains no runs" in err


def test_a_damaged_bundle_is_refused(shelf):
    fake(shelf, MOMENTUM, "fedavg", seeds=(0,))
    next((shelf / "published/adafedadam/evidence").rglob("*.parquet")).write_bytes(b"PAR1")
    status, _, err = call("report", str(shelf))
    assert status == 2
    assert re.search(
        r"published/adafedadam/evidence cannot be read \(\S+\.parquet is not the file that bundle.json",
        err,
    )
    assert err.count("\n") == 1


def test_a_bundle_of_a_paper_that_is_not_asked_for_is_not_read(shelf):
    fake(shelf, "smoke", "fedavg", seeds=(0,))
    next((shelf / "published/adafedadam/evidence").rglob("*.parquet")).write_bytes(b"PAR1")
    status, _, err = call("report", str(shelf))
    assert (status, err) == (0, "")
