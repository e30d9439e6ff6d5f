"""FedPer and LG-FedAvg: FedAvg with the head or the body left with the clients."""

import pytest
from command_line import FAST
from safetensors.torch import load_file

import fedbench

KEYS = f"{' '.join(FAST)} model=mlp"


def models(path, keys):
    run = fedbench.run(f"{KEYS} {keys} results_dir={path}")
    files = {"model", *(["personal"] if (run.path / "personal.safetensors").exists() else [])}
    return {name: load_file(run.path / f"{name}.safetensors") for name in files}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("algo=fedper parts.personal=[]", "algo=fedavg"),
        ("algo=fedper", "algo=fedavg parts.personal=[head]"),
        ("algo=lgfedavg", "algo=fedavg algo.weights=uniform parts.personal=[body]"),
        ("algo=lgfedavg parts.personal=[head]", "algo=fedper algo.weights=uniform"),
    ],
)
def test_both_are_fedavg_with_a_personal_part(tmp_path, one, other):
    first, second = models(tmp_path, one), models(tmp_path, other)
    assert first.keys() == second.keys()
    for name, values in first.items():
        assert values.keys() == second[name].keys()
        assert all((v == second[name][key]).all() for key, v in values.items())


def test_only_the_other_part_is_sent(tmp_path):
    sent = {}
    for algo in ("fedavg", "fedper", "lgfedavg"):
        run = fedbench.run(f"{KEYS} algo={algo} results_dir={tmp_path}")
        sent[algo] = run.last_round()["bytes_up"]
    assert sent["fedper"] + sent["lgfedavg"] == sent["fedavg"]
    assert sent["lgfedavg"] == 4 * 8 * 4 * (128 * 10 + 10)  # rounds, clients, bytes, the head
