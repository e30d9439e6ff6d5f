"""Bundles: what they keep of runs that were never trained, that it is the same, and what is wrong with damaged ones."""

import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fake_runs import fake

import fedbench
from fedbench.analysis.kept_rounds import published
from fedbench.analysis.matching import best_round
from fedbench.core.errors import RequestError
from fedbench.core.metrics import CATALOGUE, metric_info
from fedbench.papers.registry import PrintedMetric, papers
from fedbench.runs.bundle import Bundle, stored
from fedbench.runs.bundle_writing import Entry, watched, write_bundle
from fedbench.runs.store import ResultStore
from fedbench.simulation.metrics import accuracy_metrics

SETUP = "fedcada/table1_device_cifar10_iid"  # a table that prints best rounds


def curve(t):
    """The rounds of a long run: every metric has its best in another round."""
    return {
        "round": t,
        "train_loss": None if t % 10 else 2 / (t + 1),
        "accuracy_mean": float(np.exp(-(((t - 40) / 30) ** 2))),
        "accuracy_std": abs(t - 70) / 100 + 0.01,
        "accuracy_worst10": 1 - ((t - 55) / 100) ** 2,
        "bytes_up": 4 * t,
        "odd": [t] if t % 2 else {"t": t},
        "half": t / 2 if t % 2 else t,
    }


@pytest.fixture
def long(tmp_path):
    """Runs with a hundred rounds, two of them with all clients' accuracies."""
    paths = fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0, 1))
    rng = np.random.default_rng(0)
    for path in paths:
        path.joinpath("rounds.jsonl").write_text("".join(json.dumps(curve(t)) + "\n" for t in range(100)))
        facts = json.loads((path / "meta.json").read_text()) | {"rounds": 99}
        (path / "meta.json").write_text(json.dumps(facts))
        n_test = rng.integers(1, 9, 5)
        tables = []
        for t in (40, 60, 99):
            accuracy = rng.integers(0, n_test + 1) / n_test
            facts = {"round": t, "client": range(5), "name": list("abcde"), "n_test": n_test, "accuracy": accuracy}
            tables.append(pd.DataFrame(facts))
        pd.concat(tables).to_parquet(path / "clients.parquet", index=False)
    return tmp_path / "runs"


def publish(root, into, read=lambda run: None):
    """Write the bundle of runs after reading something of them, and return its runs and the original ones."""
    store = ResultStore(root)
    runs = list(store)
    seen = [watched(run) for run in runs]
    for run in seen:
        read(run)
    write_bundle(into, [published(r, r.path.relative_to(root).as_posix()) for r in seen], store.damaged, {})
    return list(stored(into)), runs


def test_the_facts_are_those_of_the_runs_without_the_directories_of_the_machine(tmp_path):
    fake(tmp_path / "runs", SETUP, "fedavg", preset={"results_dir": "/here", "data_dir": "/there", "local.lr": 0.1})
    (failed,) = fake(tmp_path / "runs", SETUP, "fedadam", seeds=(3,), status="failed")
    facts = json.loads((failed / "meta.json").read_text())
    (failed / "meta.json").write_text(json.dumps({**facts, "overrides": ["results_dir=/here", "algo=fedadam"]}))
    shown, runs = publish(tmp_path / "runs", tmp_path / "out")
    assert [r.path.relative_to(tmp_path / "out") for r in shown] == [
        r.path.relative_to(tmp_path / "runs") for r in runs
    ]
    for one, other in zip(shown, runs, strict=True):
        assert one.config == {k: v for k, v in other.config.items() if not k.endswith("_dir")}
        assert one.meta == {**other.meta, "overrides": [o for o in other.meta["overrides"] if "/here" not in o]}
        assert (one.done, one.counts, one.outcome) == (other.done, other.counts, other.outcome)
    assert [r.outcome for r in shown] == ["failed", "done", "done", "done"]
    assert [r.records.begun for r in shown] == [False, True, True, True]


def test_the_best_and_the_last_round_of_every_metric_are_kept(long, tmp_path):
    shown, runs = publish(long, tmp_path / "out")
    for one, other in zip(shown, runs, strict=True):
        assert one.last_round() == other.last_round()
        assert list(one.last_round()) == list(other.last_round())
        assert [type(v) for v in one.last_round().values()] == [type(v) for v in other.last_round().values()]
        for name in CATALOGUE:
            metric = PrintedMetric("m", "", metric_info(name).direction, name)
            assert best_round(one, metric) == best_round(other, metric), name
    kept = shown[0].rounds()["round"].tolist()
    assert {0, 40, 70, 55, 99} <= set(kept)  # the first and last, and those of the mean, the STD and the tail
    assert len(kept) < 15
    rows = {r["round"]: r for r in shown[0].records.rows(range(100))}
    assert all(row == curve(t) for t, row in rows.items())  # of any type


def test_the_directions_of_the_papers_are_those_of_the_catalogue():
    """So the best round of a printed metric is one of those that a bundle keeps."""
    for paper in papers().values():
        for metric in paper.metrics.values():
            assert metric.direction == metric_info(metric.field).direction, (paper.id, metric.id)


def test_curves_that_were_read_are_kept_whole_and_others_are_refused(long, tmp_path):
    shown, runs = publish(long, tmp_path / "out", lambda run: run.curves(("accuracy_mean", "train_loss", "absent")))
    for one, other in zip(shown, runs, strict=True):
        pd.testing.assert_frame_equal(
            one.curves(("train_loss", "accuracy_mean")), other.curves(("train_loss", "accuracy_mean"))
        )
        assert list(one.curves(("absent",)).columns) == ["round"]
        with pytest.raises(RequestError, match="accuracy_std is kept at some rounds only; at all rounds the"):
            one.curves(("accuracy_std",))


def test_clients_are_kept_at_the_last_round_and_at_printed_best_rounds(long, tmp_path):
    """The table prints the best round of the mean, 40; the run kept 60 too."""
    shown, runs = publish(long, tmp_path / "out")
    for one, other in zip(shown, runs, strict=True):
        pd.testing.assert_frame_equal(one.clients_at().reset_index(drop=True), other.clients().query("round == 99")
                                      .reset_index(drop=True))  # fmt: skip
        assert sorted(set(one.clients_at(range(100))["round"])) == [40, 99]
        with pytest.raises(RequestError, match="the per-client table of some rounds only"):
            one.clients()
    shown, runs = publish(long, tmp_path / "all", lambda run: run.clients())
    pd.testing.assert_frame_equal(shown[1].clients(), runs[1].clients())


def test_the_accuracy_of_a_client_is_that_of_the_last_round(tmp_path):
    (path,) = fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0,))
    table = pd.read_parquet(path / "clients.parquet")
    table.loc[table["client"] == 3, "accuracy"] = None
    twice = table[(table["round"] == table["round"].max()) & table["client"].isin([3, 4])]
    table = pd.concat([table, twice.assign(client=4)])  # one of its accuracies is missing
    table.to_parquet(path / "clients.parquet", index=False)
    shown, runs = publish(tmp_path / "runs", tmp_path / "out")
    end = table[table["round"] == table["round"].max()].iloc[:6]["accuracy"].tolist()
    for run in (*shown, *runs):
        assert [run.accuracy_of(k) for k in range(7)] == [*end[:3], None, None, end[5], None]


def test_a_table_of_clients_without_accuracies_has_none(tmp_path):
    (path,) = fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0,))
    pd.read_parquet(path / "clients.parquet").drop(columns="accuracy").to_parquet(path / "clients.parquet")
    shown, runs = publish(tmp_path / "runs", tmp_path / "out")
    assert [run.accuracy_of(0) for run in (*shown, *runs)] == [None, None]


def test_accuracies_that_are_text_are_refused_with_the_name_of_the_file(tmp_path):
    fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0,))
    publish(tmp_path / "runs", tmp_path / "out")
    file, index = tmp_path / "out/evidence/clients.parquet", tmp_path / "out/evidence/bundle.json"
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    pd.read_parquet(file).assign(accuracy="high").to_parquet(file, index=False)
    index.write_text(index.read_text().replace(old, hashlib.sha256(file.read_bytes()).hexdigest()))
    (run,) = Bundle(tmp_path / "out")
    with pytest.raises(RequestError, match=r"clients\.parquet cannot be read: could not convert string to float"):
        run.accuracy_of(0)


def test_a_new_reading_is_computed_from_the_bundle(long, tmp_path):
    """Weighted and unweighted statistics of the last round, from accuracies and numbers of test examples."""
    shown, runs = publish(long, tmp_path / "out")
    for one, other in zip(shown, runs, strict=True):
        tables = (one.clients_at(), other.clients().query("round == 99"))
        new, old = (accuracy_metrics(t["accuracy"].to_numpy(), t["n_test"].to_numpy()) for t in tables)
        assert new == old
        assert new["accuracy_mean_weighted"] != new["accuracy_mean"]


def test_documents_that_were_read_are_kept(tmp_path):
    fake(tmp_path / "runs", SETUP, "fedcada", moments=[[1.0, 0.5], [0.5, 1.0]])
    shown, runs = publish(tmp_path / "runs", tmp_path / "out", lambda run: run.document("moments"))
    assert [r.document("moments") for r in shown] == [r.document("moments") for r in runs]
    assert shown[0].document("other") is None


def test_a_bundle_of_a_bundle_is_the_same(long, tmp_path):
    def read(run):
        run.curves(("accuracy_mean",))

    publish(long, tmp_path / "one", read)
    seen = [watched(run) for run in Bundle(tmp_path / "one")]
    for run in seen:
        read(run)
    entries = [published(run, run.path.relative_to(tmp_path / "one").as_posix()) for run in seen]
    write_bundle(tmp_path / "two", entries, (), {})
    for path in (tmp_path / "one" / "evidence").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "evidence" / path.name).read_bytes(), path.name


def test_a_bundle_without_rounds_or_clients(tmp_path):
    fake(tmp_path / "runs", SETUP, "fedavg", seeds=(0,), status="failed")
    (run,), _ = publish(tmp_path / "runs", tmp_path / "out")
    assert (run.done, run.records.begun, run.records.has_clients, run.records.rows(())) == (False, False, False, [])
    with pytest.raises(RequestError, match="no per-client table"):
        run.clients_at()
    write_bundle(tmp_path / "none", [], ["a message"], {})
    assert (list(Bundle(tmp_path / "none")), Bundle(tmp_path / "none").damaged) == ([], ["a message"])


def test_files_of_an_earlier_bundle_are_removed(long, tmp_path):
    (run,) = list(ResultStore(long))[:1]
    write_bundle(tmp_path, [Entry(watched(run), "a")], (), {"labels/x/y.json": b"[1]", "plan.json": b"{}"})
    assert (Bundle(tmp_path).place / "labels/x/y.json").read_bytes() == b"[1]"
    write_bundle(tmp_path, [Entry(watched(run), "a")], (), {})
    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.joinpath("evidence").rglob("*") if p.is_file()}
    tables = {f"evidence/{name}.parquet" for name in ("runs", "rounds", "curves", "clients")}
    assert names == {*tables, "evidence/bundle.json"}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def rewrite(**facts):
    def change(path):
        path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))

    return change


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("rounds.parquet", flip, "rounds.parquet is not the file that bundle.json was written for"),
        ("clients.parquet", lambda path: path.unlink(), "clients.parquet cannot be read"),
        ("bundle.json", lambda path: path.unlink(), "bundle.json cannot be read"),
        ("bundle.json", lambda path: path.write_text("{"), "bundle.json cannot be read"),
        ("bundle.json", lambda path: path.write_text("{}"), "bundle.json cannot be read: 'format'"),
        ("bundle.json", rewrite(format=9), "bundle.json has format 9, and this version reads 1"),
        ("bundle.json", rewrite(files={}), "its tables cannot be read: 'runs.parquet'"),
        ("bundle.json", rewrite(files=3), "bundle.json cannot be read"),
    ],
)
def test_a_damaged_bundle_is_refused(long, tmp_path, name, damage, message):
    publish(long, tmp_path / "out")
    damage(tmp_path / "out" / "evidence" / name)
    with pytest.raises(RequestError, match=message) as caught:
        stored(tmp_path / "out")
    assert "restore the folder from version control" in str(caught.value)


def test_facts_that_are_not_those_of_a_run_are_refused(long, tmp_path):
    (run,) = list(ResultStore(long))[:1]
    write_bundle(tmp_path, [Entry(watched(replace(run, meta={**run.meta, "seed": "x"})), "a")], (), {})
    with pytest.raises(RequestError, match=r"runs.parquet a: meta.json: seed must be an integer, got 'x'"):
        list(stored(tmp_path))


def test_load_results_reads_a_bundle(long, tmp_path):
    publish(long, tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    new, old = fedbench.load_results(tmp_path / "copy"), fedbench.load_results(long)
    assert new.runs["path"].tolist() == [str(tmp_path / "copy" / p) for p in _relative(old, long)]
    last = old.rounds[old.rounds["round"] == 99]
    assert new.rounds[new.rounds["round"] == 99]["accuracy_mean"].tolist() == last["accuracy_mean"].tolist()
    assert sorted(set(new.clients["round"])) == [40, 99]


def _relative(results, root):
    return [p.removeprefix(f"{root}/") for p in results.runs["path"]]
