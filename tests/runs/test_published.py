"""Published reports as finished runs of a results directory, with runs that were never trained."""

import hashlib
import json
import shutil

import pytest
from fake_runs import fake

from fedbench.runs.bundle_writing import Entry, watched, write_bundle
from fedbench.runs.published import Published, WithPublished, stored_with_published
from fedbench.runs.store import ResultStore

PAPER, OTHER = "adafedadam", "known"
HERE = f"{PAPER}/table5_synthetic"


@pytest.fixture
def results(tmp_path):
    """Five runs of a paper in its bundle: two methods that are done, one run that diverged, and one that failed."""
    results, runs = tmp_path / "results", tmp_path / "runs"
    fake(runs, HERE, "fedavg", seeds=(0, 1))
    fake(runs, HERE, "fednova", seeds=(0,))
    fake(runs, HERE, "fedadam", seeds=(0,), status="diverged")
    fake(runs, HERE, "qfedavg", seeds=(0,), status="failed")
    publish(runs, results / "published" / PAPER)
    return results


def publish(runs, into):
    entries = []
    for run in map(watched, ResultStore(runs)):
        run.curves(("accuracy_mean",))
        entries.append(Entry(run, run.path.relative_to(runs).as_posix()))
    write_bundle(into, entries, (), {})


def at(results, algo, seed=0):
    """The directory of a run."""
    (setting,) = {p.parent for p in (results.parent / "runs" / HERE / algo).glob("*/seed_*")}
    return results / setting.relative_to(results.parent / "runs") / f"seed_{seed}"


def names(runs):
    return [(r.meta["algo"], r.meta["seed"], r.outcome, r.path.exists()) for r in runs]


def change(results, algo, **facts):
    """Let the run in a directory have other facts."""
    file = at(results, algo) / "meta.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))


def test_what_became_of_a_run(results):
    found = Published(results)
    assert found.outcome(at(results, "fedavg", 1)) == "done"
    assert found.outcome(at(results, "fedadam")) == "diverged"
    assert found.outcome(at(results, "qfedavg")) == ""  # it failed, which is not finished
    assert found.outcome(at(results, "fedavg", 2)) == ""
    assert found.outcome(results / OTHER / "a" / "b" / "c" / "seed_0") == ""
    assert [found.has(HERE, algo) for algo in ("fedavg", "qfedavg")] == [True, False]
    assert not found.has(f"{OTHER}/a", "fedavg")


def test_a_run_of_the_bundle_has_its_directory_below_the_results(results):
    run = Published(results).run(at(results, "fednova"))
    assert (run.path, run.records.place) == (at(results, "fednova"), results / "published" / PAPER)
    assert not run.path.exists()
    (first,) = (r for r in ResultStore(results.parent / "runs") if r.meta["algo"] == "fednova")
    assert run.last_round() == first.last_round()
    assert run.curves(("accuracy_mean",)).equals(first.curves(("accuracy_mean",)))
    assert Published(results).run(at(results, "qfedavg")) is None


def test_a_bundle_counts_for_the_experiments_of_its_name_only(results):
    """So a run is looked for in one bundle, and two bundles never have the same run."""
    (results / "published" / PAPER).rename(results / "published" / OTHER)
    found = Published(results)
    assert found.outcome(at(results, "fedavg")) == ""
    assert found.runs(PAPER) == found.runs(OTHER) == []
    assert found.damaged == {}


def test_runs_come_in_the_order_of_their_paths_wherever_they_are(results):
    fake(results, "adafed/table7_fmnist", "fedavg", seeds=(0,))
    fake(results, HERE, "fedprox", seeds=(0,))
    store = stored_with_published(results, [PAPER])
    assert names(store) == [
        ("fedavg", 0, "done", True),  # of the other paper
        ("fedadam", 0, "diverged", False),
        ("fedavg", 0, "done", False),
        ("fedavg", 1, "done", False),
        ("fednova", 0, "done", False),
        ("fedprox", 0, "done", True),
    ]
    assert (store.root, store.place, store.damaged) == (results, results, [])
    assert names(stored_with_published(results, [])) == names(ResultStore(results))
    shutil.rmtree(results / "published")
    assert names(stored_with_published(results, [PAPER])) == names(ResultStore(results))
    assert Published(results).outcome(at(results, "fedavg")) == ""


def test_a_finished_run_on_disk_comes_first_and_an_unfinished_one_last(results):
    shutil.copytree(results.parent / "runs" / PAPER, results / PAPER)
    change(results, "fedavg", device_name="here")
    change(results, "fednova", device_name="here", status="interrupted")
    (at(results, "fednova") / "DONE").unlink()
    shutil.rmtree(at(results, "fedadam"))
    store = stored_with_published(results, [PAPER])
    assert [(r.meta["algo"], r.meta["seed"], r.outcome, r.meta["device_name"]) for r in store] == [
        ("fedadam", 0, "diverged", "cpu"),
        ("fedavg", 0, "done", "here"),
        ("fedavg", 1, "done", "cpu"),
        ("fednova", 0, "done", "cpu"),
        ("qfedavg", 0, "failed", "cpu"),
    ]
    assert (at(results, "fednova") / "rounds.jsonl").exists()  # left as it is


def test_a_copy_of_a_published_run_in_another_directory_is_the_same_run(results):
    """As in a directory of runs, where the first of two copies counts."""
    there = results.parent / "runs" / at(results, "fednova").relative_to(results)
    shutil.copytree(there, results / "mine")
    found = [r for r in stored_with_published(results, [PAPER]) if r.meta["algo"] == "fednova"]
    assert [r.path for r in found] == [results / "mine"]


def test_the_published_run_stands_in_for_a_damaged_one_which_is_named(results):
    shutil.copytree(results.parent / "runs" / PAPER, results / PAPER)
    (at(results, "fednova") / "meta.json").write_text("torn")
    store = stored_with_published(results, [PAPER])
    assert ("fednova", 0, "done") in [n[:3] for n in names(store)]
    (why,) = store.damaged
    assert why.startswith(at(results, "fednova").relative_to(results).as_posix())


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_a_damaged_bundle_is_named_and_none_of_its_runs_counts(results):
    flip(results / "published" / PAPER / "evidence" / "curves.parquet")
    fake(results, HERE, "fedprox", seeds=(0,))
    found = Published(results)
    assert found.outcome(at(results, "fedavg")) == ""
    assert found.runs(PAPER) == []
    store = WithPublished(ResultStore(results), found, [PAPER])
    assert names(store) == [("fedprox", 0, "done", True)]
    (why,) = store.damaged
    assert why.startswith(
        f"published/{PAPER}/evidence: curves.parquet is not the file that bundle.json was written for"
    )
    assert str(results) not in why
    assert [*WithPublished(ResultStore(results), found, [OTHER])]
    assert WithPublished(ResultStore(results), found, [OTHER]).damaged == []


def test_a_table_that_cannot_be_read_though_its_checksum_is_right(results):
    """A plan does not read it, and takes the runs as finished; a report does, and leaves them out."""
    evidence = results / "published" / PAPER / "evidence"
    (evidence / "clients.parquet").write_bytes(b"no Parquet")
    facts = json.loads((evidence / "bundle.json").read_text())
    facts["files"]["clients.parquet"] = hashlib.sha256(b"no Parquet").hexdigest()
    (evidence / "bundle.json").write_text(json.dumps(facts))
    found = Published(results)
    assert found.outcome(at(results, "fedavg")) == "done"
    assert len(found.runs(PAPER, check=False)) == 4
    store = WithPublished(ResultStore(results), found, [PAPER])
    assert names(store) == []
    assert "its tables cannot be read" in store.damaged[0]
    assert found.outcome(at(results, "fedavg")) == ""


def test_curves_that_a_bundle_lacks_are_left_out_of_the_next_bundle(results):
    """Only runs on disk have further ones; what was read of all runs of the paper is kept of those that have it."""
    fake(results, HERE, "fedprox", seeds=(0,))
    kept = {}
    for run in stored_with_published(results, [PAPER]):
        records = watched(run).records
        records.keep(("accuracy_mean", "accuracy_std", "absent"))
        kept[run.meta["algo"]] = records.curves_read
    every = {"accuracy_mean", "accuracy_std", "absent"}
    assert kept == {"fedprox": every, **dict.fromkeys(("fedavg", "fednova", "fedadam"), every - {"accuracy_std"})}
