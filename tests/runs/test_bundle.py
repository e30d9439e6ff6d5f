"""Bundles: what they keep of runs that were never trained, and published reports as finished runs."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from fake_runs import fake, seal
from tools import ROOT

import fedbench
from fedbench.analysis.curves import best_rounds
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
    for path in fake(root, SETUP, "fedavg", seeds=(0, 1), preset={"results_dir": "/here", "data_dir": "/there"}):
        path.joinpath("rounds.jsonl").write_text("".join(json.dumps(curve(t)) + "\n" for t in range(100)))
        facts = json.loads((path / "meta.json").read_text())
        facts |= {"rounds": 99, "overrides": ["results_dir=/here", "algo=fedavg"]}
        (path / "meta.json").write_text(json.dumps(facts))
        tables = [
            pd.DataFrame({"round": t, "client": range(5), "n_test": 4, "accuracy": rng.integers(0, 5, 5) / 4})
            for t in (40, 60, 99)
        ]
        pd.concat(tables).to_parquet(path / "clients.parquet", index=False)
        seal(path)
    return root


def publish(root, into, keep=kept_of, files=None):
    """Write the bundle of runs, and return its runs and the original ones."""
    runs = {run.path.relative_to(root).as_posix(): as_published(run) for run in Results(root)}
    write_bundle(into, runs, keep, (), files)
    return list(Results(into)), list(Results(root))


def test_a_bundle_keeps_facts_best_rounds_curves_and_printed_clients(long, tmp_path):
    """All but the directories of the machine; of the clients, those of round 40, whose mean the table prints."""
    shown, runs = publish(long, tmp_path / "out")
    for one, other in zip(shown, runs, strict=True):
        assert one.path.relative_to(tmp_path / "out") == other.path.relative_to(long)
        assert one.config == {k: v for k, v in other.config.items() if not k.endswith("_dir")}
        assert one.meta == {**other.meta, "overrides": ["algo=fedavg"]}
        assert (one.done, one.counts, one.outcome, one.place) == (True, True, "done", tmp_path / "out")
        assert one.last_round() == other.last_round()
        assert [type(v) for v in one.last_round().values()] == [type(v) for v in other.last_round().values()]
        assert best_rounds(one, CATALOGUE) == best_rounds(other, CATALOGUE)
        assert len(one.rounds()) < 15
        names = ("train_loss", "accuracy_mean", "absent")
        pd.testing.assert_frame_equal(one.curves(names), other.curves(names))
        with pytest.raises(RequestError, match="accuracy_std is kept at some rounds only; at all rounds the"):
            one.curves(("accuracy_std",))
        assert one.clients()["round"].unique().tolist() == [40, 99]
        last = other.clients().query("round == 99").reset_index(drop=True)
        pd.testing.assert_frame_equal(one.clients_at().reset_index(drop=True), last)
        assert [one.accuracy_of(k) for k in range(6)] == [*last["accuracy"], None]


def test_a_bundle_of_a_bundle_is_the_same(long, tmp_path):
    publish(long, tmp_path / "one")
    publish(tmp_path / "one", tmp_path / "two")
    for path in (tmp_path / "one" / "evidence").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "evidence" / path.name).read_bytes(), path.name


def test_runs_of_no_paper_keep_all_curves_and_clients(tmp_path):
    fake(tmp_path / "runs", None, "fedavg", moments=[[1.0, 0.5], [0.5, 1.0]])
    for one, other in zip(*publish(tmp_path / "runs", tmp_path / "out"), strict=True):
        pd.testing.assert_frame_equal(one.curves(list(other.rounds())), other.rounds())
        pd.testing.assert_frame_equal(one.clients(), other.clients())
        assert one.document("moments") == other.document("moments")
        assert one.document("other") is None


def test_a_run_that_failed_has_facts_only(tmp_path):
    fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0,), status="failed")
    ((run,), _) = publish(tmp_path / "runs", tmp_path / "out")
    assert (run.outcome, run.done, run.begun, run.has_clients) == ("failed", False, False, False)
    write_bundle(tmp_path / "none", {}, kept_of, ["a message"])
    store = Results(tmp_path / "none")
    assert (list(store), store.damaged) == ([], ["a message"])


def test_files_of_an_earlier_bundle_are_removed(long, tmp_path):
    publish(long, tmp_path, files={"labels/x/y.json": b"[1]", "plan.json": b"{}"})
    assert (tmp_path / "evidence/labels/x/y.json").read_bytes() == b"[1]"
    publish(long, tmp_path)
    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.joinpath("evidence").rglob("*") if p.is_file()}
    tables = {f"evidence/{name}.parquet" for name in ("runs", "rounds", "curves", "clients")}
    assert names == {*tables, "evidence/bundle.json"}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("rounds.parquet", flip, "rounds.parquet is not the file that bundle.json was written for"),
        ("clients.parquet", lambda path: path.unlink(), "cannot be read .*No such file.*clients.parquet"),
        ("bundle.json", lambda path: path.write_text("{}"), "cannot be read .'format'."),
        ("bundle.json", lambda path: path.write_text('{"format": 9}'), "format 9, and this version reads 1"),
        (
            "bundle.json",
            lambda path: path.write_text('{"format": 1, "files": {}}'),
            "bundle.json has no checksum of clients.parquet",
        ),
    ],
)
def test_a_damaged_bundle_is_refused(long, tmp_path, name, damage, message):
    publish(long, tmp_path / "out")
    damage(tmp_path / "out" / "evidence" / name)
    with pytest.raises(RequestError, match=message) as caught:
        Results(tmp_path / "out")
    assert "restore the folder from version control" in str(caught.value)


def test_load_results_reads_a_bundle(long, tmp_path):
    publish(long, tmp_path / "out")
    new, old = fedbench.load_results(tmp_path / "out"), fedbench.load_results(long)
    assert new.runs["seed"].tolist() == old.runs["seed"].tolist()
    last = old.rounds[old.rounds["round"] == 99]
    assert new.rounds[new.rounds["round"] == 99]["accuracy_mean"].tolist() == last["accuracy_mean"].tolist()
    assert sorted(set(new.clients["round"])) == [40, 99]


def test_the_directions_of_the_papers_are_those_of_the_catalogue():
    """So the best round of a printed metric is one of those that a bundle keeps."""
    for paper in papers().values():
        for metric in (m for m in paper.metrics.values() if m.target is None):
            assert metric.direction == metric_info(metric.field).direction, (paper.id, metric.id)


def test_the_fields_of_a_paper_are_those_of_its_figures_and_claims_in_both_weightings():
    assert curve_fields(papers()["adafed"]) == [
        "accuracy_mean", "accuracy_mean_weighted", "accuracy_std", "accuracy_std_weighted", "improved_clients",
        "seconds_train", "update_norm",
    ]  # fmt: skip
    assert curve_fields(papers()["fafed"]) == ["train_loss"]


@pytest.mark.parametrize("name", ["adafed", "adafedadam", "fafed", "fedcada", "fedfa"])
def test_published_evidence_has_the_curves_that_its_paper_reads(name):
    """Of all keys that its runs have measured."""
    bundle = Results(ROOT / "results" / "published" / name).bundle
    known = set(bundle.part("curves", 0).column_names)
    measured = {key for key in curve_fields(papers()[name]) if key in bundle.part("rounds", 0).column_names}
    assert measured <= known


# ---- published reports as finished runs of a results directory


@pytest.fixture
def results(tmp_path):
    """Five runs of a paper in its bundle: two methods that are done, one run that diverged, and one that failed."""
    results, runs = tmp_path / "results", tmp_path / "runs"
    fake(runs, HERE, "fedavg", seeds=(0, 1))
    fake(runs, HERE, "fednova", seeds=(0,))
    fake(runs, HERE, "fedadam", seeds=(0,), status="diverged")
    fake(runs, HERE, "qfedavg", seeds=(0,), status="failed")
    publish(runs, results / "published" / PAPER, lambda _: Kept(curves=("accuracy_mean",)))
    return results


def at(results, algo, seed=0):
    """The directory of a run."""
    (setting,) = {p.parent for p in (results.parent / "runs" / HERE / algo).glob("*/seed_*")}
    return results / setting.relative_to(results.parent / "runs") / f"seed_{seed}"


def names(runs):
    return [(r.meta["algo"], r.meta["seed"], r.outcome, r.path.exists()) for r in runs]


def test_a_published_run_is_found_by_the_directory_that_it_would_have(results):
    found = Results(results).published(PAPER)
    run = found[at(results, "fednova")]
    assert (run.path, run.place) == (at(results, "fednova"), results / "published" / PAPER)
    assert found[at(results, "fedadam")].outcome == "diverged"
    assert at(results, "qfedavg") not in found  # it failed, which is not finished
    (results / "published" / PAPER).rename(results / "published" / OTHER)  # runs are those of the bundle's name
    assert Results(results).published(PAPER) == Results(results).published(OTHER) == {}


def test_runs_come_in_the_order_of_their_paths_and_finished_ones_on_disk_first(results):
    shutil.copytree(results.parent / "runs" / PAPER, results / PAPER)
    fake(results, "adafed/table7_fmnist", "fedavg", seeds=(0,))
    shutil.rmtree(at(results, "fedadam"))
    unfinished = at(results, "fednova") / "meta.json"
    unfinished.write_text(json.dumps(json.loads(unfinished.read_text()) | {"status": "interrupted"}))
    (at(results, "fednova") / "DONE").unlink()
    store = Results(results, [PAPER])
    found = [(r.meta["algo"], r.meta["seed"], r.outcome, r.place != r.path) for r in store]
    assert found == [
        ("fedavg", 0, "done", False),  # of the other paper
        ("fedadam", 0, "diverged", True),
        ("fedavg", 0, "done", False),
        ("fedavg", 1, "done", False),
        ("fednova", 0, "done", True),
        ("qfedavg", 0, "failed", False),
    ]
    assert (store.root, store.place, store.damaged) == (results, results, [])
    assert names(Results(results, [])) == names(Results(results))


def test_a_copy_of_a_published_run_in_another_directory_is_the_same_run(results):
    there = results.parent / "runs" / at(results, "fednova").relative_to(results)
    shutil.copytree(there, results / "mine")
    found = [r for r in Results(results, [PAPER]) if r.meta["algo"] == "fednova"]
    assert [r.path for r in found] == [results / "mine"]


def test_the_published_run_stands_in_for_a_damaged_one_which_is_named(results):
    shutil.copytree(results.parent / "runs" / PAPER, results / PAPER)
    (at(results, "fednova") / "meta.json").write_text("torn")
    store = Results(results, [PAPER])
    assert ("fednova", 0, "done") in [n[:3] for n in names(store)]
    (why,) = store.damaged
    assert why.startswith(at(results, "fednova").relative_to(results).as_posix())


def test_a_damaged_bundle_is_refused_when_its_runs_are_asked_for(results):
    flip(results / "published" / PAPER / "evidence" / "curves.parquet")
    fake(results, HERE, "fedprox", seeds=(0,))
    with pytest.raises(RequestError, match="curves.parquet is not the file"):
        list(Results(results, [PAPER]))
    assert names(Results(results, [OTHER])) == [("fedprox", 0, "done", True)]
