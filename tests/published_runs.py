"""A small benchmark that is really run, its entries, and bundles that somebody has forged."""

import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq

from fedbench.benchmarks.definition import Benchmark, Search, Setting
from fedbench.benchmarks.execution import BenchmarkContext
from fedbench.config.compose import Composer
from fedbench.runs.executors.local import LocalExecutor

METHODS = ("fedavg", "fedprox")
BENCHMARK = Benchmark(
    name="small",
    version=1,
    title="A small benchmark",
    lead="",
    changes={1: "first version"},
    settings={"one": Setting("smoke", ("data=synthetic_iid",), ("a", "b"), "")},
    baseline="fedavg",
    weights="uniform",
    search=Search((0.01, 0.1), 2, (1000,), "val_accuracy_mean"),
    seeds=2,
    metrics=("accuracy_mean", "accuracy_worst10"),
    tolerance=0.0,
    methods=METHODS,
)


def shared_of(folder, config_dir=None, **changes):
    """The benchmark, with changes, and a results directory."""
    benchmark = Benchmark(**vars(BENCHMARK) | changes)
    return BenchmarkContext(benchmark, Composer(config_dir), LocalExecutor(1), folder)


def run_methods(folder, methods=METHODS, config_dir=None):
    """Tune and run methods; returns their entries."""
    shared = shared_of(folder, config_dir)
    planned = [shared.planned("one", method) for method in methods]
    return [plan.finished() or plan.execute()[0] for plan in planned]


def files_of(folder):
    """The files below a directory by their names."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def forge(folder, document=None, row=None, manifest=None, twice=False):
    """Change a bundle and make its checksums right again.

    Args:
        document: Changes the content of benchmark.json.
        row: Changes the row of a run: its path, configuration, facts and tables.
        manifest: Changes the content of the manifest.
        twice: Whether to write every run twice.
    """
    place = folder / "evidence"
    facts = json.loads((place / "bundle.json").read_text())
    files = {}
    for name in facts["files"]:
        content = (place / name).read_bytes()
        if name == "benchmark.json" and document is not None:
            tree = json.loads(content)
            document(tree)
            content = json.dumps(tree).encode()
        if name.endswith(".parquet") and (row is not None or twice):
            (place / name).unlink()
            content = _changed(content, row or (lambda row: None), twice)
            name = f"{name.rpartition('/')[0]}/{sha256(content)[:10]}.parquet"
        (place / name).write_bytes(content)
        files[name] = sha256(content)
    facts["files"] = files
    if manifest is not None:
        manifest(facts)
    (place / "bundle.json").write_text(json.dumps(facts))


def _changed(content, change, twice):
    """A Parquet file with changed rows."""
    table = pq.read_table(pa.BufferReader(content))
    rows = table.to_pylist()
    for row in rows:
        texts = {name: json.loads(row[name]) for name in ("config", "meta")}
        row.update(texts)
        change(row)
        row.update({name: json.dumps(row[name]) for name in texts})
    sink = pa.BufferOutputStream()
    rows *= 1 + twice
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), sink)
    return sink.getvalue().to_pybytes()
