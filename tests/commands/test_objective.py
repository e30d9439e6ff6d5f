"""The metric by which trials are judged."""

import pytest
from command_line import FAST

from fedbench.commands.objective import objective_of
from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError


def test_an_interval_without_a_sweeper_that_draws_is_refused_with_what_to_type(fed):
    status, _, err = fed("-m", "local.lr=interval(0.01,0.5)", *FAST)
    assert status == 2
    assert "local.lr=interval(0.01,0.5) has no list of values" in err
    assert "fedbench tune" in err


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ([], "accuracy_mean"),
        (["data.validation=0.2"], "val_accuracy_mean"),
        (["data.validation=0.2", "objective=accuracy_worst30"], "accuracy_worst30"),
        (["data.validation=0.2", "objective=val_loss"], "val_loss"),
        (["objective=test_loss"], "test_loss"),
    ],
)
def test_which_metric_is_the_objective(given, name):
    assert objective_of(compose_run(given)) == name


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("objective=accuracy_meen", "did you mean accuracy_mean"),
        ("objective=val_accuracy_mean", "data.validation"),
        ("objective=clients", "is not a metric"),
    ],
)
def test_an_objective_that_no_run_has_is_refused_before_anything_runs(fed, tmp_path, given, text):
    status, _, err = fed("tune", "algo=fedprox", given, "data.validation=0", *FAST)
    assert status == 2
    assert text in err
    assert not (tmp_path / "results").exists()


def test_the_objective_is_no_part_of_the_identity():
    assert compose_run(["objective=test_loss"]).digest == compose_run([]).digest


def test_a_request_error_names_the_key():
    with pytest.raises(RequestError, match="objective must be auto or a column"):
        compose_run(["objective=1"])
