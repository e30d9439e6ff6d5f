"""The settings of runs in sentences, shared or different, with names as papers print them."""

import pytest
import yaml
from fake_runs import change_facts, fake
from tools import ALGORITHMS, ROOT

from fedbench.config.descriptions import citation, method_name
from fedbench.reports.methods import described, title_of_runs
from fedbench.runs.results import Results

PRESET = yaml.safe_load(
    """
    data.source._target_: fedbench.data.sources.cifar10.load
    data.split: 0.8
    data.local_test: split
    data.seed: null
    data.clients: 16
    data.partition._target_: its.rules.dirichlet
    data.partition.alpha: 0.5
    participation: 0.1
    local.optimizer: sgd
    local.lr: 0.1
    local.epochs: 1
    local.steps: null
    local.batch_size: full
    local.momentum: 0.9
    local.weight_decay: 0.0
    tuned_on: [1000]
    """
)
DATA = "CIFAR-10, dirichlet (alpha=0.5), 16 clients, 10 % per round"
SENTENCES = """\
The method is FedAvg or q-FedAvg (q=0.1) or q-FedAvg (q=1), by setting
The data are CIFAR-10, dirichlet (alpha=0.5), 16 clients
The split is 80 % of each client's examples for training and the others for testing, \
drawn again for every seed
The model is linear
The number of rounds is 1000
The cohort is 10 % of the clients
Local work is 1 epoch of SGD on batches of all of a client's examples, momentum=0.9
The local learning rate is 0.1
The seeds are 0 and 1
The choice of values is by validation examples, with the tuning seeds [1000], which no result has
"""


def runs(root, **methods):
    """Runs of methods, each with the keys of its settings."""
    for algo, settings in methods.items():
        for keys in settings:
            fake(
                root,
                None,
                algo,
                keys=keys,
                preset=PRESET,
                seeds=(0, 1),
            )
    return list(Results(root))


def test_the_sentences_have_all_settings(tmp_path):
    settings = [{"algo.q": 0.1}, {"algo.q": 1.0}]
    *sentences, last = described(
        runs(
            tmp_path,
            fedavg=[{}],
            qfedavg=settings,
        )
    )
    assert sentences == SENTENCES.splitlines()
    assert last.startswith("The software and hardware are fedbench 0.1.0, torch 2, device cpu")


def test_a_value_is_named_with_its_method(tmp_path):
    sentences = described(
        runs(
            tmp_path,
            fedavg=[{"local.lr": 0.5}],
            qfedavg=[{}],
            fedprox=[{}],
        )
    )
    rates = "0.1 (FedProx, q-FedAvg) or 0.5 (FedAvg)"
    assert f"The local learning rate is {rates}" in sentences


def test_many_values_are_counted(tmp_path):
    sentences = described(
        runs(
            tmp_path,
            qfedavg=[{"algo.q": q} for q in range(5)],
        )
    )
    assert "The method is different between settings, in 5 ways that the tables list" in sentences


def test_every_combination_of_settings_has_words(tmp_path):
    settings = [
        {"local.steps": 5, "local.batch_size": 10},
        {"local.epochs": [1, 3], "participation": 1.0, "data.local_test": "auto"},
        {
            "participation": 4,
            "data.local_test": "central",
            "data.seed": 0,
            "data.validation": 0.2,
            "local.schedule": "decay",
            "local.decay_factor": 0.5,
            "local.decay_every": 3,
        },
    ]
    runs(tmp_path, fedavg=settings)
    change_facts(tmp_path, parameters=7850)
    text = ". ".join(described(Results(tmp_path)))
    for words in (
        "5 steps of SGD on batches of 10 examples",
        "[1,3] epochs of SGD",
        "for testing, or the source's own by client",
        "linear with 7,850 parameters",
        "all clients",
        " 4 clients",
        "the publisher's, with all test examples for every client, drawn once with seed 0",
        "; 20 % of the training",
        ", decay_every=3",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ("uniform", ""),
        ("size", ", sampled by their size"),
        ("power_of_choice", ", those with the largest losses of candidates sampled by their size"),
        ("loss", ", sampled by their losses"),
    ],
)
def test_the_selection_of_clients_has_words(tmp_path, sampling, words):
    runs(tmp_path, fedavg=[{"sampling": sampling}])
    assert f"The cohort is 10 % of the clients{words}" in described(Results(tmp_path))


def test_scenarios_and_losses_are_named(tmp_path):
    keys = {"attack.clients": 0.2, "attack._target_": "a.b", "objective.beta": 1.0}
    runs(tmp_path, fedavg=[keys])
    change_facts(tmp_path, attack="sign_flip", objective="ntd", defence="none")
    text = "The other parts are objective ntd (beta=1); attack sign_flip (clients=0.2)"
    assert text in described(Results(tmp_path))


def test_without_finished_runs_there_are_no_sentences(tmp_path):
    fake(tmp_path, None, "fedavg", status="failed")
    assert described(Results(tmp_path)) == []
    assert title_of_runs([]) == "No runs"


def test_the_title_counts_many_methods(tmp_path):
    names = ("fedavg", "qfedavg", "fedprox", "term", "afl")
    several = runs(tmp_path, **{name: [{}] for name in names})
    assert title_of_runs(several) == f"5 methods on {DATA}"


def test_every_method_and_every_public_source_has_a_name_in_print():
    names = [method_name(algo) for algo in ALGORITHMS]
    assert all(names)
    assert len(set(names)) == len(names)
    assert method_name("mine") == "mine"
    sources = yaml.safe_load((ROOT / "conf" / "citations.yaml").read_text(encoding="utf-8"))
    nameless = {name for name in sources if not citation(f"fedbench.data.sources.{name}").name}
    assert nameless == {"huggingface", "imagefolder", "leaf_json", "npz"}
