"""Bundles: their parts of runs, and published reports as finished runs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import meta_of
from fake_runs import fake, fake_run, seal
from tools import ROOT

from fedbench.analysis.curves import best_rounds, low_and_high
from fedbench.analysis.run_rows import kept_of
from fedbench.core.errors import RequestError
from fedbench.core.metrics import CATALOGUE, metric_info
from fedbench.papers.registry import curve_fields, papers
from fedbench.runs.bundle import Kept, as_published, write_bundle
from fedbench.runs.results import Results

SETUP = "fedcada/table1_device_cifar10_iid"  # a table that prints best rounds
PAPER, OTHER = "adafedadam", "known"
HERE = f"{PAPER}/table5_synthetic"


def curve(t):
    """The rounds of a long run: every metric has its best in another round."""
    return {
        "round": t,
        "train_loss": None if t % 10 else 2 / (t + 1),
        "accuracy_mean": float(np.exp(-(((t - 40) / 30) ** 2))),
        "accuracy_std": abs(t - 70) / 100 + 0.01,
        "accuracy_worst10": 1 - ((t - 55) / 100) ** 2,
        "bytes_up": 4 * t,
    }


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Runs with a hundred rounds and the clients of three of them."""
    root = tmp_path_factory.mktemp("long") / "runs"
    rng = np.random.default_rng(0)
    places = {"results_dir": "/here", "data_dir": "/there"}
    for path in fake(
        root,
        SETUP,
        "fedavg",
        seeds=(0, 1),
        preset=places,
    ):
        rows = [json.dumps(curve(t)) + "\n" for t in range(100)]
        (path / "rounds.jsonl").write_text("".join(rows))
        change_meta(path, rounds=99, overrides=["results_dir=/here", "algo=fedavg"])
        clients = {
            t: {"client": range(5), "n_test": 4, "accuracy": rng.integers(0, 5, 5) / 4}
            for t in (40, 60, 99)
        }
        write_clients(path, clients)
    return root


def change_meta(path, **facts):
    (path / "meta.json").write_text(json.dumps(meta_of(path) | facts))


def write_clients(path, rounds):
    """Write the clients of a run, given as columns by round, and seal it."""
    tables = [pd.DataFrame({"round": t, **columns}) for t, columns in rounds.items()]
    pd.concat(tables).to_parquet(path / "clients.parquet", index=False)
    seal(path)


def publish(root, into, keep=kept_of):
    """Write the bundle of runs; returns its runs and the original ones."""
    runs = {run.path.relative_to(root).as_posix(): as_published(run) for run in Results(root)}
    write_bundle(into, runs, keep)
    return list(Results(into)), list(Results(root))


@pytest.fixture
def pairs(long, tmp_path):
    """Published runs with their originals."""
    return list(zip(*publish(long, tmp_path / "out"), strict=True))


def test_a_bundle_keeps_facts_without_the_directories_of_the_machine(pairs, long, tmp_path):
    place = tmp_path / "out"
    for run, original in pairs:
        assert run.path.relative_to(place) == original.path.relative_to(long)
        assert run.config == {k: v for k, v in original.config.items() if not k.endswith("_dir")}
        assert run.meta == {**original.meta, "overrides": ["algo=fedavg"]}
        assert run.outcome == "done"
        assert run.place == place


def test_a_bundle_keeps_best_rounds_and_the_curves_of_figures(pairs):
    names = ("train_loss", "accuracy_mean", "absent")
    for run, original in pairs:
        last = run.last_round()
        assert last == original.last_round()
        types = [type(value) for value in original.last_round().values()]
        assert [type(value) for value in last.values()] == types
        assert best_rounds(run, CATALOGUE) == best_rounds(original, CATALOGUE)
        assert len(run.rounds()) < 15
        pd.testing.assert_frame_equal(run.curves(names), original.curves(names))
        with pytest.raises(RequestError, match="accuracy_std is kept at some rounds only"):
            run.curves(("accuracy_std",))


def test_a_bundle_keeps_the_clients_that_a_table_prints(pairs):
    """Those of the last round, and those of round 40, which has the best mean."""
    for run, original in pairs:
        assert run.clients()["round"].unique().tolist() == [40, 99]
        last = original.clients().query("round == 99").reset_index(drop=True)
        pd.testing.assert_frame_equal(run.last_clients().reset_index(drop=True), last)
        assert [run.accuracy_of(k) for k in range(6)] == [*last["accuracy"], None]


def evidence(folder):
    """The files of a bundle by their names."""
    place = folder / "evidence"
    files = [p for p in place.rglob("*") if p.is_file()]
    return {p.relative_to(place).as_posix(): p.read_bytes() for p in files}


def without_manifest(files):
    return {name: content for name, content in files.items() if name != "bundle.json"}


def test_publishing_more_runs_leaves_written_files_as_they_are(tmp_path):
    """Neither another experiment nor another seed rewrites a file."""
    runs = tmp_path / "runs"
    out = tmp_path / "out"
    fake(runs, SETUP, "fedavg", seeds=(0, 1))
    publish(runs, out)
    first = without_manifest(evidence(out))
    (other,) = fake(runs, SETUP, "fedavg", seeds=(2,))
    fake_run(runs, HERE, "fedavg")
    shown, originals = publish(runs, out)
    assert len(shown) == len(originals) == 4
    more = without_manifest(evidence(out))
    assert more.items() > first.items()
    assert len(more) == 3

    # a run that has gone takes only its own file with it
    shutil.rmtree(other)
    publish(runs, out)
    kept = {name for name in more if name in first or HERE in name}
    assert without_manifest(evidence(out)) == {name: more[name] for name in kept}


def test_a_file_that_is_not_the_one_that_was_written_is_replaced(long, tmp_path):
    publish(long, tmp_path)
    written = evidence(tmp_path)
    flip(next((tmp_path / "evidence/runs").rglob("*.parquet")))
    publish(long, tmp_path)
    assert evidence(tmp_path) == written


def test_a_bundle_keeps_two_last_clients_all_rounds_where_a_figure_shows_them(tmp_path):
    """Those whose first training losses are the lowest and the highest."""
    losses = {0: [3.0, 1.0, 2.0, 5.0], 10: [1.0, 0.4, 0.5, 0.5]}
    runs = tmp_path / "runs"
    path = fake_run(runs, "adafed/table1_cifar10_s1", "adafed")
    fixed = {"client": range(4), "accuracy": 0.5}
    write_clients(
        path,
        {t: {**fixed, "train_loss": loss} for t, loss in losses.items()},
    )
    ((run,), (original,)) = publish(runs, tmp_path / "out")
    kept = run.clients()
    clients = kept.groupby("round")["client"].agg(list).to_dict()
    assert clients == {0: [1, 3], 10: [0, 1, 2, 3]}
    curves = low_and_high(kept)
    for curve, same in zip(curves, low_and_high(original.clients()), strict=True):
        pd.testing.assert_series_equal(curve, same)


def test_runs_of_no_paper_keep_all_curves_and_clients(tmp_path):
    runs = tmp_path / "runs"
    fake_run(
        runs,
        None,
        "fedavg",
        moments=[[1.0, 0.5], [0.5, 1.0]],
    )
    ((run,), (original,)) = publish(runs, tmp_path / "out")
    pd.testing.assert_frame_equal(
        run.curves(list(original.rounds())),
        original.rounds(),
    )
    pd.testing.assert_frame_equal(run.clients(), original.clients())
    assert run.document("moments") == original.document("moments")
    assert run.document("other") is None


def test_a_run_that_failed_has_facts_only(tmp_path):
    fake_run(
        tmp_path / "runs",
        SETUP,
        "fedavg",
        status="failed",
    )
    ((run,), _) = publish(tmp_path / "runs", tmp_path / "out")
    assert run.outcome == "failed"
    assert not run.done
    assert not run.begun
    assert not run.has_clients


def test_a_bundle_has_the_messages_of_runs_that_cannot_be_read(tmp_path):
    write_bundle(tmp_path, {}, kept_of, ["a message"])
    store = Results(tmp_path)
    assert list(store) == []
    assert store.damaged == ["a message"]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def write(text):
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("*.parquet", flip, "parquet is not the file that bundle.json was written for"),
        ("*.parquet", Path.unlink, "cannot be read .*No such file.*parquet"),
        ("bundle.json", write("{}"), "cannot be read .'format'."),
        ("bundle.json", write('{"format": 9}'), "format 9, and this version reads 2"),
    ],
)
def test_a_damaged_bundle_is_refused(long, tmp_path, name, damage, message):
    publish(long, tmp_path)
    (file,) = (tmp_path / "evidence").rglob(name)
    damage(file)
    with pytest.raises(RequestError, match=message) as caught:
        Results(tmp_path)
    assert "restore the folder from version control" in str(caught.value)


def test_the_directions_of_the_papers_are_those_of_the_catalogue():
    """So the best round of a printed metric is one of those that a bundle keeps."""
    for paper in papers().values():
        for metric in (m for m in paper.metrics.values() if m.target is None):
            assert metric.direction == metric_info(metric.field).direction, (paper.id, metric.id)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["adafed", "adafedadam", "fafed", "fedcada", "fedfa"],
)
def test_published_evidence_has_the_curves_that_its_paper_reads(name):
    """Of all keys that its runs have measured."""
    fields = curve_fields(papers()[name])
    for run in Results(ROOT / "results" / "published" / name):
        last = run.last_round() if run.done else {}
        measured = [key for key in fields if last.get(key) is not None]
        assert set(measured) <= set(run.curves(measured))


# ---- published reports as finished runs of a results directory


@pytest.fixture
def runs(tmp_path):
    """Five runs of a paper: three that are done, one that diverged, and one that failed."""
    runs = tmp_path / "runs"
    fake(runs, HERE, "fedavg", seeds=(0, 1))
    fake_run(runs, HERE, "fednova")
    fake_run(runs, HERE, "fedadam", status="diverged")
    fake_run(runs, HERE, "qfedavg", status="failed")
    return runs


@pytest.fixture
def results(runs, tmp_path):
    """A results directory with their bundle."""
    results = tmp_path / "results"
    publish(
        runs,
        results / "published" / PAPER,
        lambda _: Kept(curves=("accuracy_mean",)),
    )
    return results


def at(results, algo):
    """The directory of the run of seed 0 of a method."""
    runs = results.parent / "runs"
    (path,) = (runs / HERE / algo).glob("*/seed_0")
    return results / path.relative_to(runs)


def names(store):
    """Method, seed, outcome and whether the run is on disk."""
    return [(r.meta["algo"], r.meta["seed"], r.outcome, r.path.exists()) for r in store]


def test_a_published_run_is_found_by_the_directory_that_it_would_have(results):
    published = Results(results).published(PAPER)
    path = at(results, "fednova")
    assert published[path].path == path
    assert published[path].place == results / "published" / PAPER
    assert published[at(results, "fedadam")].outcome == "diverged"
    assert at(results, "qfedavg") not in published  # it failed, so it is not finished


def test_published_runs_belong_to_the_paper_of_their_bundle(results):
    (results / "published" / PAPER).rename(results / "published" / OTHER)
    assert Results(results).published(PAPER) == Results(results).published(OTHER) == {}


# method, seed, outcome, and whether the run is published; the first is of the other paper
ORDER = """\
fedavg 0 done False
fedadam 0 diverged True
fedavg 0 done False
fedavg 1 done False
fednova 0 done True
qfedavg 0 failed False"""


def test_runs_come_in_the_order_of_their_paths_and_finished_ones_on_disk_first(runs, results):
    shutil.copytree(runs / PAPER, results / PAPER)
    fake_run(results, "adafed/table7_fmnist", "fedavg")
    shutil.rmtree(at(results, "fedadam"))
    unfinished = at(results, "fednova")
    change_meta(unfinished, status="interrupted")
    (unfinished / "DONE").unlink()
    store = Results(results, [PAPER])
    shown = [
        f"{run.meta['algo']} {run.meta['seed']} {run.outcome} {run.place != run.path}"
        for run in store
    ]
    assert shown == ORDER.split("\n")
    assert store.root == results
    assert store.damaged == []


def test_a_copy_of_a_published_run_in_another_directory_is_the_same_run(runs, results):
    shutil.copytree(
        runs / at(results, "fednova").relative_to(results),
        results / "mine",
    )
    found = [r.path for r in Results(results, [PAPER]) if r.meta["algo"] == "fednova"]
    assert found == [results / "mine"]


def test_the_published_run_stands_in_for_a_damaged_one_which_is_named(runs, results):
    shutil.copytree(runs / PAPER, results / PAPER)
    damaged = at(results, "fednova")
    (damaged / "meta.json").write_text("torn")
    store = Results(results, [PAPER])
    assert ("fednova", 0, "done", True) in names(store)
    (message,) = store.damaged
    assert message.startswith(damaged.relative_to(results).as_posix())


def test_a_damaged_bundle_is_refused_when_its_runs_are_asked_for(results):
    flip(next((results / "published" / PAPER / "evidence").rglob("*.parquet")))
    fake_run(results, HERE, "fedprox")
    with pytest.raises(RequestError, match="parquet is not the file"):
        list(Results(results, [PAPER]))
    assert names(Results(results, [OTHER])) == [("fedprox", 0, "done", True)]
