"""What was run, in sentences: shared facts, then those that differ; names as papers print them."""

import yaml
from fake_runs import fake
from report_runs import call
from tools import ROOT

from fedbench.config.comments import citation, method_name
from fedbench.reports.methods import described, title_of_runs
from fedbench.runs.results import Results

PRESET = {
    "data.source._target_": "fedbench.data.sources.cifar10.load", "data.split": 0.8, "data.local_test": "split",
    "data.seed": None, "data.clients": 16, "data.partition._target_": "its.rules.dirichlet",
    "data.partition.alpha": 0.5, "participation": 0.1, "local.optimizer": "sgd", "local.lr": 0.1, "local.epochs": 1,
    "local.steps": None, "local.batch_size": "full", "local.momentum": 0.9, "local.weight_decay": 0.0,
    "tuned_on": [1000],
}  # fmt: skip
DATA = "CIFAR-10, dirichlet (alpha=0.5), 16 clients, participation 0.1"


def runs(root, **methods):
    for algo, values in methods.items():
        for more in values:
            fake(root, None, algo, keys=more, preset=PRESET, seeds=(0, 1))
    return list(Results(root))


def test_the_sentences_say_everything_that_a_reader_needs(tmp_path):
    found = described(runs(tmp_path, fedavg=[{}], qfedavg=[{"algo.q": 0.1}, {"algo.q": 1.0}]))
    assert found[:-1] == [
        "The method is FedAvg or q-FedAvg (q=0.1) or q-FedAvg (q=1), by setting",
        "The data are CIFAR-10, dirichlet (alpha=0.5), 16 clients",
        "The split is 80 % of each client's examples for training and the others for testing, "
        "drawn again for every seed",
        "The model is linear",
        "The number of rounds is 1000",
        "The cohort is 10 % of the clients",
        "Local work is 1 epoch of SGD on batches of all of a client's examples, momentum=0.9",
        "The local learning rate is 0.1",
        "The seeds are 0 and 1",
        "The choice of values is by validation examples, with the tuning seeds [1000], which no result has",
    ]
    assert found[-1].startswith("The software and hardware are fedbench 0.1.0, torch 2, device cpu")


def test_a_value_that_goes_with_a_method_is_said_to(tmp_path):
    found = described(runs(tmp_path, fedavg=[{"local.lr": 0.5}], qfedavg=[{}], fedprox=[{}]))
    assert "The local learning rate is 0.1 (FedProx, q-FedAvg) or 0.5 (FedAvg), by setting" in found


def test_what_differs_in_many_ways_is_counted(tmp_path):
    found = described(runs(tmp_path, qfedavg=[{"algo.q": q} for q in (0.1, 0.5, 1.0, 2.0, 5.0)]))
    assert "The method is different between settings, in 5 ways that the tables list" in found


def test_every_combination_of_local_work_has_words(tmp_path):
    varied = [
        {"local.steps": 5, "local.batch_size": 10}, {"local.epochs": [1, 3], "participation": 1.0},
        {"participation": 4, "data.local_test": "central", "data.seed": 0, "data.validation": 0.2},
    ]  # fmt: skip
    text = ". ".join(described(runs(tmp_path, fedavg=varied)))
    for words in (
        "5 steps of SGD on batches of 10 examples", "[1,3] epochs of SGD", "all clients", " 4 clients",
        "the publisher's, with all test examples for every client, drawn once with seed 0; 20 % of the training",
    ):  # fmt: skip
        assert words in text


def test_without_finished_runs_there_are_no_sentences(tmp_path):
    fake(tmp_path, None, "fedavg", status="failed")
    assert described(Results(tmp_path)) == []
    assert title_of_runs([]) == "No runs"


def test_the_title_counts_what_is_too_much_to_list(tmp_path):
    few = runs(tmp_path / "few", fedavg=[{}], qfedavg=[{}])
    many = runs(
        tmp_path / "many", **{a: [{}] for a in ("fedavg", "qfedavg", "fedprox", "term", "afl")}
    )
    assert title_of_runs(few) == f"FedAvg and q-FedAvg on {DATA}"
    assert title_of_runs(many) == f"5 methods on {DATA}"


def test_every_method_and_every_public_source_has_a_name_in_print():
    names = {
        path.stem: method_name(path.stem) for path in (ROOT / "conf" / "algo").glob("[!_]*.yaml")
    }
    assert all(name and len(name) < 30 for name in names.values())
    assert len(set(names.values())) == len(names)
    assert method_name("mine") == "mine"
    known = yaml.safe_load((ROOT / "conf" / "citations.yaml").read_text(encoding="utf-8"))
    nameless = {name for name in known if not citation(f"fedbench.data.sources.{name}").name}
    assert nameless == {"huggingface", "imagefolder", "leaf_json", "npz"}


def test_the_page_of_own_runs_starts_with_them(tmp_path):
    runs(tmp_path, fedavg=[{}], qfedavg=[{}])
    assert call("report", str(tmp_path))[0] == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert f"<h1>FedAvg and q-FedAvg on {DATA}</h1>" in page
    assert page.index("The local learning rate is 0.1. ") < page.index('id="others"')
