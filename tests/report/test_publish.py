"""Published reports: the bundle of a report alone gives the same bytes, file by file."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from fake_runs import edit, fake, fake_row
from report_runs import call, files, fill

from fedbench.papers.registry import papers
from fedbench.reports.write import write_report
from fedbench.runs.results import Results

CKA = [[1.0, 0.25, None], [0.25, 1.0, 0.5], [None, 0.5, 1.0]]
# of per-client results of all rounds, and of a document
FIGURES = {"adafed": ("figure3",), "fedcada": ("figure2",)}


def fill_figures(root):
    """Runs of figures of every kind that has runs, with a document, and a plan with a refusal."""
    fill(root)
    for paper, figure in ((p, f) for p, figures in FIGURES.items() for f in figures):
        p = papers()[paper]
        rows = {(r.setup, r.algo, str(r.hyperparameters)): r for r in p.figures[figure].rows}
        for row in list(rows.values())[:4]:
            keys, setup = p.overrides(row), p.setups[row.setup]
            moments = CKA if p.figures[figure].kind == "cka" else None
            fake(
                root,
                setup.experiment,
                p.methods[row.algo].algo,
                keys,
                seeds=(0, 1),
                moments=moments,
            )


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A report of everything, after its runs have gone."""
    root, into = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("published") / "all"
    fill_figures(root)
    write_report(root, into)
    shutil.rmtree(root)
    return into


@pytest.mark.slow
def test_a_published_report_is_written_again_from_its_bundle_alone(published, tmp_path):
    write_report(published, tmp_path / "again")
    one, other = files(published), files(tmp_path / "again")
    assert set(one) == set(other)
    for name in one:
        assert one[name] == other[name], name
    kinds = {name.partition("/")[0] for name in one}
    assert kinds == {"index.html", "runs.parquet", "summary.json", "tables", "figures", "evidence"}
    drawn = [name for name in one if name.endswith(".svg")]
    shown = {f"{paper}_{figure}" for paper, figures in FIGURES.items() for figure in figures}
    assert {f"figures/{figure}.svg" for figure in shown - {"fedcada_figure2"}} <= set(drawn)
    assert b"rounds.jsonl" in one["index.html"]  # the damaged run is still named


def test_a_report_of_one_paper_and_its_numbers(tmp_path, no_figures):
    p = papers()["adafedadam"]
    for row in p.tables["table4"].rows:
        fake_row(
            tmp_path / "runs", p, row, preset={"algo.alpha": 1.0, "results_dir": str(tmp_path)}
        )
    fake(tmp_path / "runs", "smoke", "fedavg")
    write_report(tmp_path / "runs", tmp_path / "one", "adafedadam")
    write_report(tmp_path / "one", tmp_path / "two")
    whole = files(tmp_path / "one")
    assert whole == files(tmp_path / "two")
    # the report below it has no bundle of its own
    status, said, _ = call("report", str(tmp_path / "two"))
    assert (status, said.splitlines()[-1]) == (
        0,
        f"written: {tmp_path / 'two' / 'report' / 'index.html'}",
    )
    below = files(tmp_path / "two" / "report")
    assert below == {
        name: content for name, content in whole.items() if not name.startswith("evidence/")
    }
    shutil.rmtree(tmp_path / "two" / "report")
    assert {r.meta["experiment"].partition("/")[0] for r in Results(tmp_path / "two")} == {
        "adafedadam"
    }
    assert "config.results_dir" not in pd.read_parquet(tmp_path / "one" / "runs.parquet")


def test_a_published_report_names_no_directory_of_the_machine(tmp_path, no_figures):
    """A damaged run is named by its path below the runs, and only in reports that it would be part of."""
    table = papers()["adafedadam"].tables["table4"]
    for row in table.rows:
        fake_row(tmp_path / "runs", papers()["adafedadam"], row)
    places = {
        experiment: fake(tmp_path / "runs", experiment, "fedavg", seeds=(7,))[0]
        for experiment in ("adafedadam/table5_synthetic", "fedcada/table1_device_cifar10_iid", None)
    }
    for place in places.values():
        (place / "rounds.jsonl").write_text("torn")
    for paper, expected in (("adafedadam", 1),):
        into = tmp_path / f"report_{paper}"
        write_report(tmp_path / "runs", into, paper)
        for name, content in files(into).items():
            assert str(tmp_path).encode() not in content, name
        damaged = json.loads((into / "evidence" / "bundle.json").read_text())["damaged"]
        assert len(damaged) == expected
        named = [p.relative_to(tmp_path / "runs").as_posix() for p in places.values()]
        assert any(why.startswith(f"{named[0]}: ") for why in damaged)
        page = (into / "index.html").read_text()
        assert [name in page for name in named] == [True, expected == 3, expected == 3]


def test_a_published_report_names_files_of_the_user_without_their_directories(tmp_path, no_figures):
    """Everywhere: configuration, overrides, sources, departures and errors; what has no absolute path stays."""
    own = "/home/some one/data"
    keys = {
        "data.file": f"{own}/x y.npz",
        "data.root": "/srv/photos/",
        "init.path": "/srv/w.safetensors",
    }
    keys |= {"data.codes": "/srv/Jörg's = run/x, y/codes", "data.here": "."}
    keys |= {
        "data.partition.file": "/srv/parts.json",
        "data.train": ["/srv/a.json", "/srv/b.json"],
        "note": "/srv/n",
    }
    error = f"OSError: no '{own}/x y.npz'\n/srv/code/r=1/ö/mine.py line 3 of 3 /4; see https://one.org/a/b, n/a"
    paths = fake(tmp_path / "runs", None, "fedavg", keys=keys, seeds=(0,))
    paths += fake(
        tmp_path / "runs", None, "qfedavg", keys=keys, seeds=(0,), status="failed", error=error
    )
    for path in paths:
        meta = json.loads((path / "meta.json").read_text())
        meta |= {
            "files": {key: 64 * "a" for key in keys if key != "note"},
            "sources": ["NumPy archive: /srv/x.npz"],
        }
        meta |= {
            "overrides": [f"data.file='{own}/x y.npz'", "init.path=/srv/w.safetensors", "q=0.1"]
        }
        edit(path / "meta.json", lambda _, meta=meta: json.dumps(meta))
    write_report(tmp_path / "runs", tmp_path / "one")
    for name, content in files(tmp_path / "one").items():
        assert not [
            part for part in (b"/srv", b"/home", b"some one", b"J\xc3", b"u00f6") if part in content
        ], name
    row = pd.read_parquet(tmp_path / "one" / "runs.parquet").iloc[0]
    assert row["config.data.file"] == "x y.npz"
    assert json.loads(row["config.data.train"]) == ["a.json", "b.json"]
    assert [row[f"config.data.{key}"] for key in ("root", "codes", "here")] == [
        "photos/",
        "codes",
        ".",
    ]
    assert (row["config.init.path"], row["config.note"]) == ("w.safetensors", "n")
    done, failed = sorted(Results(tmp_path / "one"), key=lambda run: run.meta["algo"])
    assert done.meta["overrides"] == ["data.file='x y.npz'", "init.path=w.safetensors", "q=0.1"]
    assert (done.meta["sources"], set(done.meta["files"].values())) == (
        ["NumPy archive: x.npz"],
        {64 * "a"},
    )
    assert done.meta["departures"]["data.train"] == [None, ["a.json", "b.json"]]
    assert (
        failed.meta["error"]
        == "OSError: no 'x y.npz'\nmine.py line 3 of 3 /4; see https://one.org/a/b, n/a"
    )
    write_report(tmp_path / "one", tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_curves_that_one_run_of_a_paper_shows_are_kept_of_all_in_both_weightings(
    tmp_path, no_figures
):
    """Figure 3 reads mean and STD over rounds; a run of Table 7 that no figure shows keeps them too."""
    p = papers()["adafedadam"]
    fake_row(tmp_path / "runs", p, p.figures["figure3"].rows[0])
    (other,) = fake(tmp_path / "runs", "adafedadam/table7_synthetic_momentum", "fedavg", seeds=(0,))
    (raw,) = (r for r in Results(tmp_path / "runs") if r.path == other)
    write_report(tmp_path / "runs", tmp_path / "out")
    (kept,) = (r for r in Results(tmp_path / "out") if r.path.parts[-5:] == other.parts[-5:])
    for name in (
        "accuracy_mean",
        "accuracy_mean_weighted",
        "accuracy_std",
        "accuracy_std_weighted",
    ):
        assert kept.curves([name])[name].equals(raw.curves([name])[name])
        assert len(kept.curves([name])) == len(raw.rounds())


def test_a_report_leaves_no_files_of_an_earlier_one(tmp_path, no_figures):
    """Runs that are gone take their tables with them; what stands beside the tables stays."""
    runs, into = tmp_path / "runs", tmp_path / "out"
    fake(runs, None, "fedavg", seeds=(0,))
    write_report(runs, into)
    alone = files(into)
    fake(runs, "smoke", "fedavg")
    write_report(runs, into)
    assert {"tables/smoke.tex", "tables/smoke.csv"} <= {n for n in files(into) if n not in alone}
    (into / "mine.yaml").write_text("mine")
    shutil.rmtree(runs / "smoke")
    write_report(runs, into)
    assert files(into) == {**alone, "mine.yaml": b"mine"}


def test_what_is_wrong_is_said(tmp_path, no_figures):
    fake(tmp_path / "runs", None, "fedavg")
    runs = tmp_path / "runs"
    for words in ([f"{runs / '..' / 'runs'}"], [str(tmp_path)], [str(runs), "--latex"]):
        status, _, said = call("report", str(runs), "--into", *words)
        assert status == 2
        assert "contains the runs; it must be another directory" in said
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("mine")
    status, _, said = call("report", str(runs), "--into", str(tmp_path / "site"))
    assert (status, files(tmp_path / "site")) == (2, {"index.html": b"mine"})
    assert "index.html is not the page of a report; name another directory with --into" in said
    write_report(tmp_path / "runs", tmp_path / "copy")
    next((tmp_path / "copy" / "evidence").rglob("*.parquet")).write_bytes(b"PAR1")
    status, _, said = call("report", str(tmp_path / "copy"))
    assert status == 2
    assert "parquet is not the file" in said
    assert "Traceback" not in said
    assert Path(tmp_path / "copy" / "index.html").exists()
