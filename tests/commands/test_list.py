"""``fedbench list GROUP NAME``: the card of a choice; a data set has a licence and citation."""

import pytest
from command_line import write_files

from fedbench.commands.list import card
from fedbench.config.comments import read
from fedbench.config.overrides import CONFIG_DIR, SCENARIOS, options


def test_a_data_set(fed):
    status, out, _ = fed("list", "data", "fmnist_dir0.5")
    facts = dict(line.split(maxsplit=1) for line in out)
    assert status == 0
    assert facts["data"].startswith("fmnist_dir0.5: Fashion-MNIST")
    assert facts["partition"].startswith("dirichlet")
    assert facts["source"] == "fedbench.data.sources.fmnist.load"
    assert facts["licence"] == "MIT"
    assert "Xiao, Rasul, Vollgraf" in facts["cite"]


def test_a_data_set_of_your_own(fed, tmp_path):
    write_files(tmp_path, {"own/data/mine.yaml": "# My data\nsource:\n  _target_: mine.load\n"})
    status, out, _ = fed("list", "data", "mine", "--config-dir", "own")
    assert status == 0
    assert out == [
        "data       mine: My data",
        "partition  natural: as the source records it",
        "source     mine.load",
        "licence    not recorded: the source is not one of fedbench's",
        "cite       not recorded",
    ]


def test_the_card_of_an_algorithm(fed):
    status, out, _ = fed("list", "algo", "fedprox")
    text = "\n".join(out)
    assert status == 0
    assert "Source: Li et al., MLSys 2020, Alg. 2." in text
    assert "Identity: μ = 0 is FedAvg." in text
    assert "Args:" not in text
    assert "  algo.mu: default 0.1; tune searches 0.001,0.01,0.1,0.5,1" in out
    assert "  algo.weights: default size" in out
    assert out[-1] == "use: fedbench algo=fedprox algo.mu=..."


@pytest.mark.parametrize("algo", options("algo"))
def test_every_algorithm_has_a_card_with_all_of_its_keys(algo):
    text = card("algo", algo, None)
    keys = [k.name for k in read(CONFIG_DIR / "algo" / f"{algo}.yaml").keys if k.name != "_target_"]
    assert all(f"  algo.{key}: default " in text for key in keys)


@pytest.mark.parametrize("group", ["model", "tracker", "data/partition", *SCENARIOS])
def test_every_choice_of_other_groups_has_a_card(group):
    for name in options(group):
        text = card(group, name, None)
        assert text.startswith(name)
        assert "has no docstring" not in text, name
        assert "must name a function" not in text, name


OWN = {
    "mine.py": """
        from fedbench import Algorithm

        def mine(local, speed=3.0):
            '''My method.'''
            int(speed)
            return Algorithm()
    """,
    "algo/mine.yaml": "# Mine\n_target_: mine.mine\nspeed: 3 # how fast\n",
}


def test_the_card_of_a_method_of_your_own(fed, tmp_path):
    write_files(tmp_path / "own", OWN)
    status, out, _ = fed("list", "algo", "mine", "--config-dir", "own")
    assert status == 0
    assert out[0] == "mine: Mine"
    assert "  algo.speed: default 3" in out  # its own check, which does not say what it allows
    assert "      how fast" in out


def test_groups_of_partitions_and_trackers_are_listed(fed):
    for group, key in (("tracker", "tracker"), ("partition", "data/partition")):
        _, out, _ = fed("list", group)
        assert [line.split()[0] for line in out] == list(options(key))
