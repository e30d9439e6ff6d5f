"""Tables, figures and captions name the data by content, not by preset or function alone."""

import re

import pytest
from fake_runs import change_facts, edit, fake_run
from report_runs import call, call_report, leave_runs

from fedbench.analysis.build_tables import run_tables
from fedbench.analysis.compare import compare
from fedbench.analysis.curves import run_curves
from fedbench.analysis.data_text import data_text, title_of
from fedbench.core.config_values import keys_text
from fedbench.reports.manuscript import write_manuscript
from fedbench.runs.results import Results

TARGET = "data.partition._target_"
COUNT = "data.partition.shards_per_client"
CIFAR = {
    "data.source._target_": "fedbench.data.sources.cifar10.load",
    "data.clients": 16,
    "participation": 1.0,
}
RULES = {
    "shards": {TARGET: "fedbench.data.partitions.label.shards", COUNT: 2},
    "iid": {TARGET: "fedbench.data.partitions.basic.iid"},
}
SHARDS = "CIFAR-10, shards (shards_per_client=2), 16 clients, all per round"
IID = "CIFAR-10, iid, 16 clients, all per round"


def runs_of(root, presets=("cifar10_dir0.05",), rules=("shards", "iid")):
    """Runs of two methods on partitions of presets; all have the departures of the preset."""
    for preset in presets:
        place = root / preset
        for rule in rules:
            # the cut gives each rule its own hash
            options = {
                "preset": CIFAR | RULES[rule],
                "cut": {f"cut.{rule}": [0, 1]},
            }
            leave_runs(place, "fedavg", "qfedavg", **options)
        change_facts(place, data=preset, departures={})
    for file in root.rglob("config.yaml"):
        edit(file, lambda text: re.sub(r"cut:\n( +\w+: 1\n)+", "", text))
    return list(Results(root))


def test_two_partitions_of_a_preset_are_two_tables_named_by_content(tmp_path):
    tables = run_tables(runs_of(tmp_path))
    assert sorted(table.title for table in tables) == [IID, SHARDS]
    assert all(line.keys == {} for table in tables for line in table.lines)


def test_a_name_may_begin_like_a_missing_value():
    facts = {"data": "null-mnist", "data.clients": "4", "participation": "null"}
    assert data_text(facts) == "null-mnist, 4 clients"


def test_one_partition_under_two_presets_is_one_table(tmp_path):
    runs = runs_of(tmp_path, presets=("cifar10_dir0.05", "cifar10_iid"), rules=("iid",))
    (table,) = run_tables(runs)
    assert table.title == IID


def test_comparisons_and_curves_have_the_same_titles(tmp_path):
    runs = runs_of(tmp_path)
    assert [block.title for block in compare(runs, "algo", "accuracy_mean").blocks] == [IID, SHARDS]
    curves = run_curves(runs, "round", "accuracy_mean", "algo")
    assert {curve.setting for curve in curves} == {IID, SHARDS}
    block, _ = compare(runs, "data", "accuracy_mean").blocks
    assert block.title == "all data, all per round, fedavg"
    assert list(block.numbers) == ["CIFAR-10, iid", "CIFAR-10, shards (shards_per_client=2)"]


def test_partitions_are_compared_under_the_names_that_are_typed(tmp_path):
    for rule in ("iid", "contiguous"):
        keys = CIFAR | {TARGET: f"fedbench.data.partitions.basic.{rule}"}
        runs = leave_runs(tmp_path, "fedavg", keys=keys)
    compared = compare(runs, TARGET, "accuracy_mean", baseline="data/partition=iid")
    assert compared.names == ("data/partition=contiguous", "data/partition=iid")


@pytest.mark.slow
def test_no_page_or_file_of_a_report_has_the_preset_alone_or_a_function(tmp_path):
    root = tmp_path / "runs"
    runs = runs_of(root)
    assert call_report(root)[0] == 0
    report = root / "report"
    page = (report / "index.html").read_text()
    title = f"FedAvg and q-FedAvg on {SHARDS}; {IID}"
    assert f"<title>{title}</title>" in page
    assert f"<h1>{title}</h1>" in page
    data = "The data are CIFAR-10, iid, 16 clients or CIFAR-10, shards (shards_per_client=2)"
    assert data in page

    paper = tmp_path / "paper"
    write_manuscript(runs, paper, [compare(runs, "algo", "accuracy_mean")])
    tables = [*(report / "tables").iterdir()]
    texts = [
        page,
        *(
            path.read_text()
            for path in (
                *tables,
                *paper.rglob("*.tex"),
            )
        ),
    ]
    assert len(texts) > 8
    for text in texts:
        plain = text.replace(r"\_", "_")
        assert "_target_" not in plain
        assert "fedbench.data" not in plain
        assert not re.search(r"(on |# |>)cifar10_dir0", plain)
    names = {path.name for path in tables if path.suffix == ".md"}
    assert names == {"cifar10_dir0.05.md", "CIFAR-10_shards_shards_per_client_2_.md"}
    for picture in (report / "figures").glob("*.svg"):
        shown = " ".join(re.findall(r">([^<]+)</text>", picture.read_text()))
        assert "CIFAR-10" in shown
        assert "cifar10" not in shown
    table = (paper / "tables" / "setting_1.tex").read_text()
    assert rf"\caption{{Mean accuracy on {IID} at the last round" in table


def test_departures_from_a_paper_have_the_name_that_is_typed(tmp_path):
    cut = {TARGET: ["fedbench.data.partitions.basic.dirichlet_min_share", RULES["iid"][TARGET]]}
    experiment = "adafedadam/table5_cifar10_dir005"
    fake_run(tmp_path, experiment, "fedavg", cut=cut)
    fake_run(
        tmp_path,
        experiment,
        "fedavg",
        keys={"algo.beta": 2},
    )
    (table,) = run_tables(Results(tmp_path))
    reductions = {text for line in table.lines for text in line.matched.reduced}
    assert "data/partition iid (experiment dirichlet_min_share)" in reductions
    texts = [*reductions, *(keys_text(line.keys) for line in table.lines)]
    assert not [text for text in texts if "_target_" in text]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("fedbench.data.partitions.basic.iid", "data/partition=iid"),
        (None, "data/partition=null"),
        ("fedbenchmark.halves", "data.partition._target_=fedbenchmark.halves"),
    ],
)
def test_functions_have_the_name_of_their_choice(value, text):
    assert keys_text({TARGET: value, "q": 1}) == f"{text} q=1"


def test_the_settings_that_runs_share_are_their_title(tmp_path):
    preset = {
        "data.source._target_": "fedbench.data.sources.synthetic.fedprox",
        "data.source.alpha": 0.5,
        "data.source.clients": 30,
        "data.source.most": None,
        "data.clients": None,
    }
    for share in (0.1, 10):
        keys = {"participation": share}
        runs = leave_runs(
            tmp_path,
            "fedavg",
            preset=preset,
            keys=keys,
            seeds=(0,),
        )
    assert title_of(runs) == "Synthetic (alpha=0.5)"
    change_facts(tmp_path, clients=30)
    (table,) = run_tables(Results(tmp_path))
    assert table.title == "Synthetic (alpha=0.5), 30 clients"
    rows = {keys_text(line.keys) for line in table.lines}
    assert rows == {"participation=0.1", "participation=10"}


def test_an_experiment_of_no_paper_is_named_with_its_data(tmp_path):
    preset = CIFAR | RULES["iid"]
    runs = leave_runs(
        tmp_path,
        "fedavg",
        experiment="smoke",
        preset=preset,
        seeds=(0,),
    )
    (table,) = run_tables(runs)
    assert (table.name, table.title) == ("smoke", f"smoke: {IID}")
    _, out, _ = call("show", str(runs[0].path))
    assert out.startswith(f"smoke: {IID}, fedavg, seed 0\n")
