"""Requests that would take for ever or all memory are refused before anything else."""

import pytest

from fedbench.cli import main
from fedbench.config.compose import compose_run
from fedbench.config.overrides import parse_overrides
from fedbench.core.errors import RequestError
from fedbench.runs.build_data import federated


@pytest.mark.parametrize(
    "values",
    [
        "range(0,1e8)",
        "shuffle(range(0,1e8))",
        "range(0,10,1e-9)",
        "range(0,10,0)",
    ],
)
def test_a_range_has_a_limit(values):
    with pytest.raises(
        RequestError, match="has more than 100000 values; type a narrower range or a larger step"
    ):
        parse_overrides([f"seed={values}"])


def test_ranges_within_the_limit_are_listed():
    assert parse_overrides(["seed=range(0,3)"])[0].each() == ["seed=0", "seed=1", "seed=2"]
    assert len(parse_overrides(["local.lr=range(0,10,0.0001)"])[0].values) == 100_000


def test_a_sweep_has_a_limit(refuse):
    axes = ["seed=range(0,1000)", "rounds=range(1,1000)", "local.lr=range(1,1000)"]
    message = "the sweep has 998001000 runs, at most 100000 are allowed; type fewer values"
    assert refuse("-m", *axes) == f"fedbench: {message}\n"


@pytest.mark.parametrize("depth", [100, 400])
@pytest.mark.parametrize("name", ["", "oc.env:"])
def test_deep_interpolations_are_refused(depth, name):
    nested = f"${{{name}" * depth + "seed" + "}" * depth
    with pytest.raises(RequestError) as error:
        compose_run([f"rounds='{nested}'"])
    assert "\n" not in str(error.value)


def test_text_that_no_file_can_hold_is_refused():
    with pytest.raises(RequestError, match="cannot be read as KEY=VALUE"):
        compose_run(["data=synthetic_leaf", "results_dir=r\udcff"])


@pytest.mark.parametrize("data", ["synthetic_leaf", "mnist_2class", "cifar10_dir0.5"])
def test_more_clients_than_fit_into_memory_are_refused(data):
    with pytest.raises(
        RequestError, match="1000000000000 clients need 1000000.0 GB, but .* lower data.clients"
    ):
        federated(compose_run([f"data={data}", "data.clients=1e12"]))


def test_too_little_memory_is_one_line(monkeypatch, capsys):
    def full(config):
        raise MemoryError("Unable to allocate 206 PiB")

    monkeypatch.setattr("fedbench.commands.data.federated", full)
    assert main(["data", "prepare", "synthetic_leaf"]) == 1
    assert capsys.readouterr().err.startswith("fedbench: MemoryError: Unable to allocate 206 PiB; ")
