"""Bundles: what they keep of runs that were never trained, and published reports as finished runs."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from fake_runs import fake, seal
from tools import ROOT

import fedbench
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
    for path in fake(
        root, SETUP, "fedavg", seeds=(0, 1), preset={"results_dir": "/here", "data_dir": "/there"}
    ):
        path.joinpath("rounds.jsonl").write_text(
            "".join(json.dumps(curve(t)) + "\n" for t in range(100))
        )
        facts = json.loads((path / "meta.json").read_text())
        facts |= {"rounds": 99, "overrides": ["results_dir=/here", "algo=fedavg"]}
        (path / "meta.json").write_text(json.dumps(facts))
        tables = [
            pd.DataFrame(
                {"round": t, "client": range(5), "n_test": 4, "accuracy": rng.integers(0, 5, 5) / 4}
            )
            for t in (40, 60, 99)
        ]
        pd.concat(tables).to_parquet(path / "clients.parquet", index=False)
        seal(path)
    return root


def publish(root, into, keep=kept_of):
    """Write the bundle of runs, and return its runs and the original ones."""
    runs = {run.path.relative_to(root).as_posix(): as_published(run) for run in Results(root)}
    write_bundle(into, runs, keep)
    return list(Results(into)), list(Results(root))


def test_a_bundle_keeps_facts_best_rounds_curves_and_printed_clients(long, tmp_path):
    """All but the directories of the machine; of the clients, those of round 40, whose mean the table prints."""
    shown, runs = publish(long, tmp_path / "out")
    for one, other in zip(shown, runs, strict=True):
        assert one.path.relative_to(tmp_path / "out") == other.path.relative_to(long)
        assert one.config == {k: v for k, v in other.config.items() if not k.endswith("_dir")}
        assert one.meta == {**other.meta, "overrides": ["algo=fedavg"]}
        assert one.done
        assert one.counts
        assert one.outcome == "done"
        assert one.place == tmp_path / "out"
        assert one.last_round() == other.last_round()
        assert [type(v) for v in one.last_round().values()] == [
            type(v) for v in other.last_round().values()
        ]
        assert best_rounds(one, CATALOGUE) == best_rounds(other, CATALOGUE)
        assert len(one.rounds()) < 15
        names = ("train_loss", "accuracy_mean", "absent")
        pd.testing.assert_frame_equal(one.curves(names), other.curves(names))
        with pytest.raises(
            RequestError, match="accuracy_std is kept at some rounds only; at all rounds the"
        ):
            one.curves(("accuracy_std",))
        assert one.clients()["round"].unique().tolist() == [40, 99]
        last = other.clients().query("round == 99").reset_index(drop=True)
        pd.testing.assert_frame_equal(one.last_clients().reset_index(drop=True), last)
        assert [one.accuracy_of(k) for k in range(6)] == [*last["accuracy"], None]


def test_a_bundle_of_a_bundle_is_the_same(long, tmp_path):
    publish(long, tmp_path / "one")
    publish(tmp_path / "one", tmp_path / "two")
    assert evidence(tmp_path / "one") == evidence(tmp_path / "two")


def evidence(folder):
    """The files of a bundle by their names."""
    place = folder / "evidence"
    return {
        p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()
    }


def test_publishing_more_runs_leaves_written_files_as_they_are(tmp_path):
    """Neither another experiment nor another seed rewrites a file; a run that has changed moves its file alone."""
    fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0, 1))
    publish(tmp_path / "runs", tmp_path / "out")
    first = evidence(tmp_path / "out")
    fake(tmp_path / "runs", HERE, "fedavg", seeds=(0,))
    fake(tmp_path / "runs", SETUP, "fedavg", seeds=(2,))
    shown, runs = publish(tmp_path / "runs", tmp_path / "out")
    more = evidence(tmp_path / "out")

    assert [run.path.relative_to(tmp_path / "out") for run in shown] == [
        run.path.relative_to(tmp_path / "runs") for run in runs
    ]
    assert {name: more[name] for name in first if name != "bundle.json"} == without_manifest(first)
    assert sorted(name.rpartition("/")[0] for name in without_manifest(more)) == [
        f"runs/{HERE}",
        f"runs/{SETUP}",
        f"runs/{SETUP}",
    ]

    shutil.rmtree(next((tmp_path / "runs").rglob("seed_2")))
    publish(tmp_path / "runs", tmp_path / "out")
    assert without_manifest(evidence(tmp_path / "out")) == {
        name: content
        for name, content in without_manifest(more).items()
        if name in first or HERE in name
    }


def without_manifest(files):
    return {name: content for name, content in files.items() if name != "bundle.json"}


def test_a_file_that_is_not_the_one_that_was_written_is_replaced(tmp_path):
    fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0, 1))
    publish(tmp_path / "runs", tmp_path / "out")
    written = evidence(tmp_path / "out")
    flip(next((tmp_path / "out/evidence/runs").rglob("*.parquet")))
    publish(tmp_path / "runs", tmp_path / "out")
    assert evidence(tmp_path / "out") == written


def test_a_bundle_keeps_two_last_clients_all_rounds_where_a_figure_shows_them(tmp_path):
    """Those whose first training losses are the lowest and the highest."""
    losses = np.array([[3.0, 1.0, 2.0, 5.0], [2.0, 0.5, 1.0, 1.0], [1.0, 0.4, 0.5, 0.5]])
    for path in fake(tmp_path / "runs", "adafed/table1_cifar10_s1", "adafed", seeds=(0,)):
        rounds = [0, 5, 10]
        tables = [
            pd.DataFrame({"round": t, "client": range(4), "accuracy": 0.5, "train_loss": row})
            for t, row in zip(rounds, losses, strict=True)
        ]
        pd.concat(tables).to_parquet(path / "clients.parquet", index=False)
        seal(path)
    ((run,), (original,)) = publish(tmp_path / "runs", tmp_path / "out")
    kept = run.clients()
    assert kept.groupby("round")["client"].agg(list).to_dict() == {
        0: [1, 3],
        5: [1, 3],
        10: [0, 1, 2, 3],
    }
    for curve, same in zip(low_and_high(kept), low_and_high(original.clients()), strict=True):
        pd.testing.assert_series_equal(curve, same)


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
    assert run.outcome == "failed"
    assert not run.done
    assert not run.begun
    assert not run.has_clients
    write_bundle(tmp_path / "none", {}, kept_of, ["a message"])
    store = Results(tmp_path / "none")
    assert list(store) == []
    assert store.damaged == ["a message"]


def test_files_of_an_earlier_bundle_are_removed(long, tmp_path):
    publish(long, tmp_path)
    (tmp_path / "evidence/old").mkdir()
    (tmp_path / "evidence/old/rounds.parquet").write_bytes(b"")
    publish(long, tmp_path)
    (file,) = without_manifest(evidence(tmp_path))
    assert file.startswith(f"runs/{SETUP}/")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("*.parquet", flip, "parquet is not the file that bundle.json was written for"),
        ("*.parquet", lambda path: path.unlink(), "cannot be read .*No such file.*parquet"),
        ("bundle.json", lambda path: path.write_text("{}"), "cannot be read .'format'."),
        (
            "bundle.json",
            lambda path: path.write_text('{"format": 9}'),
            "format 9, and this version reads 2",
        ),
    ],
)
def test_a_damaged_bundle_is_refused(long, tmp_path, name, damage, message):
    publish(long, tmp_path / "out")
    (file,) = (tmp_path / "out" / "evidence").rglob(name)
    damage(file)
    with pytest.raises(RequestError, match=message) as caught:
        Results(tmp_path / "out")
    assert "restore the folder from version control" in str(caught.value)


def test_load_results_reads_a_bundle(long, tmp_path):
    publish(long, tmp_path / "out")
    new, old = fedbench.load_results(tmp_path / "out"), fedbench.load_results(long)
    assert new.runs["seed"].tolist() == old.runs["seed"].tolist()
    last = old.rounds[old.rounds["round"] == 99]
    assert (
        new.rounds[new.rounds["round"] == 99]["accuracy_mean"].tolist()
        == last["accuracy_mean"].tolist()
    )
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
    for run in Results(ROOT / "results" / "published" / name):
        measured = [
            key
            for key in curve_fields(papers()[name])
            if run.done and run.last_round().get(key) is not None
        ]
        assert set(measured) <= set(run.curves(measured))


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
    assert run.path == at(results, "fednova")
    assert run.place == results / "published" / PAPER
    assert found[at(results, "fedadam")].outcome == "diverged"
    assert at(results, "qfedavg") not in found  # it failed, which is not finished
    # runs are those of the bundle's name
    (results / "published" / PAPER).rename(results / "published" / OTHER)
    assert Results(results).published(PAPER) == Results(results).published(OTHER) == {}


def test_runs_come_in_the_order_of_their_paths_and_finished_ones_on_disk_first(results):
    shutil.copytree(results.parent / "runs" / PAPER, results / PAPER)
    fake(results, "adafed/table7_fmnist", "fedavg", seeds=(0,))
    shutil.rmtree(at(results, "fedadam"))
    unfinished = at(results, "fednova") / "meta.json"
    unfinished.write_text(
        json.dumps(json.loads(unfinished.read_text()) | {"status": "interrupted"})
    )
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
    assert store.root == results
    assert store.damaged == []
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
    flip(next((results / "published" / PAPER / "evidence").rglob("*.parquet")))
    fake(results, HERE, "fedprox", seeds=(0,))
    with pytest.raises(RequestError, match="parquet is not the file"):
        list(Results(results, [PAPER]))
    assert names(Results(results, [OTHER])) == [("fedprox", 0, "done", True)]
