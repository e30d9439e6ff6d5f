"""``fedbench list GROUP NAME``: the card of a choice."""

import re

import pytest

from fedbench.commands.list import card
from fedbench.config.compose import Composer
from fedbench.config.descriptions import about
from fedbench.config.overrides import CONFIG_DIR, SCENARIOS, options


def test_the_card_of_a_data_set(fed):
    status, out, _ = fed("list", "data", "fmnist_dir0.5")
    assert status == 0
    assert out[0].startswith("fmnist_dir0.5: Fashion-MNIST")
    assert "    - partition: dirichlet" in out
    assert "    _target_: fedbench.data.sources.fmnist.load" in out
    assert "licence  MIT" in out
    assert any(line.startswith("cite     Xiao, Rasul, Vollgraf") for line in out)


@pytest.mark.parametrize("name", options("data"))
def test_the_list_has_the_number_of_clients(name):
    tree, _ = Composer().composed([f"data={name}"])
    text = about(CONFIG_DIR / "data" / f"{name}.yaml")
    counts = re.findall(r"(\d+|three)(?: equal)? clients", text)
    clients = tree["data"]["clients"]  # None for data that come with their clients
    assert [count.replace("three", "3") for count in counts] == ([str(clients)] if clients else [])


def test_an_unknown_one_is_refused(fed):
    status, _, error = fed("list", "data", "fmnst_iid")
    assert status == 2
    assert "data=fmnst_iid is unknown; did you mean fmnist_iid?" in error


def test_the_card_of_an_algorithm(fed):
    status, out, _ = fed("list", "algo", "fedprox")
    text = "\n".join(out)
    assert status == 0
    assert "Source: Li et al., MLSys 2020, Alg. 2." in text
    assert "Identity: μ = 0 is FedAvg." in text
    assert "Args:" not in text
    assert "  mu: 0.1 # weight of the proximal term" in text
    assert "tune searches local.lr=tag(log,interval(0.0001,1)) algo.mu=0.001,0.01,0.1,0.5,1" in out
    assert out[-1] == "use: fedbench algo=fedprox"


@pytest.mark.parametrize(
    "group", ["algo", "data", "model", "tracker", "objective", "data/partition", *SCENARIOS]
)
def test_every_choice_has_a_card(group):
    for name in options(group):
        text = card(group, name, None)
        assert text.startswith(name)
        assert "has no docstring" not in text, name
        assert "must name a function" not in text, name


def test_the_card_of_a_choice_that_includes_another_one_has_the_keys_of_both(fed):
    text = "\n".join(fed("list", "partition", "dirichlet_min_share_0.1")[1])
    assert "  min_share: 0.1 # minimum share of one class" in text
    assert text.index("alpha: 0.5 # concentration") < text.index("alpha: 0.1")


def test_the_card_of_a_method_of_your_own(fed, tmp_path):
    (tmp_path / "own" / "algo").mkdir(parents=True)
    (tmp_path / "own" / "mine.py").write_text(
        "from fedbench import Algorithm\n\n"
        "def mine(local, speed=3.0):\n    '''My method.'''\n    int(speed)\n"
        "    return Algorithm()\n"
    )
    (tmp_path / "own" / "algo" / "mine.yaml").write_text(
        "# Mine\n_target_: mine.mine\nspeed: 3 # how fast\n"
    )
    status, out, _ = fed("list", "algo", "mine", "--config-dir", "own")
    assert status == 0
    assert out[0] == "mine: Mine"
    assert "  speed: 3 # how fast" in out
    assert out[-1] == "use: fedbench --config-dir own algo=mine"
