"""Tables, figures and captions name the data by content: whatever the preset is called, and never by a function."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from fake_runs import edit, fake
from report_runs import call, tables_in

from fedbench.analysis.build_tables import run_tables
from fedbench.analysis.compare import compare
from fedbench.analysis.curves import run_curves
from fedbench.analysis.data_text import title_of
from fedbench.core.config_values import keys_text
from fedbench.reports.manuscript import write_manuscript
from fedbench.runs.results import Results

CIFAR = {
    "data.source._target_": "fedbench.data.sources.cifar10.load",
    "data.clients": 16,
    "participation": 1.0,
}
TARGET = "data.partition._target_"
RULES = {
    "shards": {
        TARGET: "fedbench.data.partitions.label.shards",
        "data.partition.shards_per_client": 2,
    },
    "iid": {TARGET: "fedbench.data.partitions.basic.iid"},
}
SHARDS = "CIFAR-10, shards (shards_per_client=2), 16 clients, participation 1"
IID = "CIFAR-10, iid, 16 clients, participation 1"


def renamed(paths, **facts):
    """Give runs on disk other facts."""
    for path in paths:
        edit(path / "meta.json", lambda text: json.dumps(json.loads(text) | facts))


def runs_of(
    root, presets=("cifar10_dir0.05",), rules=("shards", "iid"), algos=("fedavg", "qfedavg"), **more
):
    for preset in presets:
        for rule in rules:
            for algo in algos:
                keys = CIFAR | RULES[rule] | more
                renamed(
                    fake(root / preset, None, algo, preset=keys, cut={f"cut.{rule}": [0, 1]}),
                    data=preset,
                )
    for file in root.rglob("config.yaml"):  # the cut gave each rule its own hash
        edit(file, lambda text: re.sub(r"cut:\n( +\w+: 1\n)+", "", text))
    renamed((file.parent for file in root.rglob("meta.json")), departures={})
    return list(Results(root))


def test_two_partitions_of_a_preset_are_two_tables_named_by_what_they_are(tmp_path):
    tables = run_tables(runs_of(tmp_path))
    assert sorted(table.title for table in tables) == [IID, SHARDS]
    assert all(line.keys == {} for table in tables for line in table.lines)


def test_one_partition_under_two_presets_is_one_table(tmp_path):
    (table,) = run_tables(
        runs_of(tmp_path, presets=("cifar10_dir0.05", "cifar10_iid"), rules=("iid",))
    )
    assert table.title == IID
    assert len({len(line.matched.runs) for line in table.lines}) == 1


def test_comparisons_and_curves_are_titled_likewise(tmp_path):
    runs = runs_of(tmp_path)
    assert [block.title for block in compare(runs, "algo", "accuracy_mean").blocks] == [IID, SHARDS]
    assert {curve.setting for curve in run_curves(runs, "round", "accuracy_mean", "algo")} == {
        IID,
        SHARDS,
    }
    (block, _) = compare(runs, "data", "accuracy_mean").blocks
    assert block.title == "all data, participation 1, fedavg"
    assert list(block.numbers) == [
        title.removesuffix(", 16 clients, participation 1") for title in (IID, SHARDS)
    ]


def test_partitions_are_compared_under_the_names_that_are_typed(tmp_path):
    for rule in ("iid", "contiguous"):
        fake(
            tmp_path,
            None,
            "fedavg",
            keys=CIFAR | {"data.partition._target_": f"fedbench.data.partitions.basic.{rule}"},
        )
    runs = list(Results(tmp_path))
    compared = compare(runs, TARGET, "accuracy_mean", baseline="data/partition=iid")
    assert compared.names == ("data/partition=contiguous", "data/partition=iid")


def test_blocks_leave_the_compared_parameter_out_of_their_title(tmp_path):
    for lr in (1, 2):
        fake(
            tmp_path,
            None,
            "fedavg",
            keys=CIFAR | RULES["shards"] | {"data.partition.shards_per_client": lr},
        )
    (block,) = compare(
        list(Results(tmp_path)), "data.partition.shards_per_client", "accuracy_mean"
    ).blocks
    assert block.title == "CIFAR-10, shards, 16 clients, participation 1, fedavg"


def test_no_page_or_file_of_a_report_has_the_preset_alone_or_a_function(tmp_path):
    root = tmp_path / "runs"
    runs = runs_of(root)
    assert call("report", str(root))[0] == 0
    page = (root / "report" / "index.html").read_text()
    title = f"FedAvg and q-FedAvg on {SHARDS}; {IID}"
    assert (f"<title>{title}</title>" in page, f"<h1>{title}</h1>" in page) == (True, True)
    assert (
        "The data are CIFAR-10, iid, 16 clients or CIFAR-10, shards (shards_per_client=2), 16 clients"
        in page
    )
    write_manuscript(runs, tmp_path / "paper", [compare(runs, "algo", "accuracy_mean")])
    files = [
        *(p for end in ("md", "csv", "tex") for p in tables_in(root / "report" / "tables", end))
    ]
    texts = [page, *(path.read_text() for path in (*files, *(tmp_path / "paper").rglob("*.tex")))]
    assert len(texts) > 8
    for text in texts:
        assert "_target_" not in text.replace(r"\_", "_")
        assert "fedbench.data" not in text
        assert not re.search(
            r"on cifar10_dir0|# cifar10_dir0|>cifar10_dir0", text.replace(r"\_", "_")
        )
    drawn = [path.read_text() for path in (root / "report" / "figures").glob("*.svg")]
    shown = [re.sub(r"\s+", " ", " ".join(re.findall(r">([^<]+)</text>", svg))) for svg in drawn]
    assert all("CIFAR-10" in text and "cifar10" not in text for text in shown)
    assert {path.name for path in files if path.suffix == ".md"} == {
        "cifar10_dir0.05.md", "CIFAR-10_shards_shards_per_client_2_.md",
    }  # fmt: skip
    (caption,) = re.findall(
        r"\\caption\{(.*)\}", (tmp_path / "paper" / "tables" / "setting_1.tex").read_text()
    )
    assert caption.startswith(rf"Mean accuracy on {IID} at the last round")


def test_what_differs_in_a_paper_goes_by_the_name_that_is_typed(tmp_path):
    cut = {TARGET: ["fedbench.data.partitions.basic.dirichlet_min_share", RULES["iid"][TARGET]]}
    fake(tmp_path, "adafedadam/table5_cifar10_dir005", "fedavg", cut=cut, seeds=(0,))
    fake(tmp_path, "adafedadam/table5_cifar10_dir005", "fedavg", keys={"algo.beta": 2}, seeds=(0,))
    (table,) = run_tables(Results(tmp_path))
    texts = {text for line in table.lines for text in (*line.matched.reduced, keys_text(line.keys))}
    assert "data/partition iid (paper dirichlet_min_share)" in texts
    assert not [text for text in texts if "_target_" in text]
    status, out, _ = call("show", str(next(tmp_path.rglob("seed_0"))))
    assert (status, "_target_" in out) == (0, False)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("fedbench.data.partitions.basic.iid", "data/partition=iid"),
        (None, "data/partition=null"),
        ("mine.halves", "data.partition._target_=mine.halves"),
        ("fedbenchmark.halves", "data.partition._target_=fedbenchmark.halves"),
    ],
)
def test_functions_go_by_the_name_of_their_choice(value, text):
    assert keys_text({TARGET: value, "q": 1}) == f"{text} q=1"


def test_what_runs_share_is_their_title(tmp_path):
    source = {
        "data.source._target_": "fedbench.data.sources.synthetic.fedprox",
        "data.source.alpha": 0.5,
    }
    rest = {"data.source.clients": 30, "data.source.most": None, "data.clients": None}
    for share in (0.1, 10):
        fake(
            tmp_path,
            None,
            "fedavg",
            preset=source | rest,
            keys={"participation": share},
            seeds=(0,),
        )
    runs = list(Results(tmp_path))
    assert title_of(runs) == "Synthetic (alpha=0.5)"
    renamed((run.path for run in runs), clients=30)
    (table,) = run_tables(Results(tmp_path))
    assert table.title == "Synthetic (alpha=0.5), 30 clients"
    assert sorted(map(keys_text, (line.keys for line in table.lines))) == [
        "participation=0.1",
        "participation=10",
    ]


def test_an_experiment_of_no_paper_is_named_with_its_data(tmp_path):
    fake(tmp_path, "smoke", "fedavg", preset=CIFAR | RULES["iid"], seeds=(0,))
    (table,) = run_tables(Results(tmp_path))
    assert (table.name, table.title) == ("smoke", f"smoke: {IID}")
    status, out, _ = call("show", str(next(tmp_path.rglob("seed_0"))))
    assert (status, out.splitlines()[0]) == (0, f"smoke: {IID}, fedavg, seed 0")


def test_a_sweep_of_two_partitions_ends_with_two_tables(fed, tmp_path):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "one two.npz", x=draw.normal(size=(80, 3)), y=draw.integers(0, 2, 80))
    file = f"data.file='{tmp_path / 'one two.npz'}'"
    words = ("data=npz", file, "data/partition=iid,shards", "data.clients=4", "rounds=1")
    status, lines, error = fed("-m", *words)
    assert status == 0, error
    heads = [re.sub(r"\(\w{10}\)", "(digest)", line) for line in lines if line.startswith("## ")]
    assert heads == [
        "## npz (file=one two.npz (digest)), iid, 4 clients, participation 1",
        "## npz (file=one two.npz (digest)), shards (shards_per_client=2), 4 clients, participation 1",
    ]
    assert fed("report", "results", "--into", "out")[0] == 0
    assert not [
        p
        for p in (tmp_path / "out").rglob("*")
        if p.is_file() and str(tmp_path).encode() in p.read_bytes()
    ]
    columns = pd.read_parquet(tmp_path / "out" / "runs.parquet")
    assert set(columns["config.data.file"]) == {"one two.npz"}
