"""The catalogue of metrics: complete, and with one direction and one unit for each."""

import numpy as np
import pytest

from fedbench.core.metrics import CATALOGUE, is_field, lower_is_better, metric_info
from fedbench.simulation.evaluation import accuracy_metrics


@pytest.mark.parametrize(
    ("direction", "fields"),
    [
        (
            "lower",
            "error_mean error_rsd error_rsd_weighted train_loss train_perplexity test_loss "
            "accuracy_std accuracy_std_weighted accuracy_variance angle_degrees kl_uniform "
            "seconds_train bytes_up bytes_down",
        ),
        (
            "higher",
            "accuracy_mean accuracy_mean_weighted accuracy_worst30_weighted accuracy_best5 "
            "accuracy_min "
            "improved_clients client:3",
        ),
        (None, "update_norm clients one_of_my_own"),
    ],
)
def test_the_better_direction_of_a_field(direction, fields):
    for field in fields.split():
        assert metric_info(field).direction == direction
        assert lower_is_better(field) == (direction == "lower")


def test_every_accuracy_column_of_a_round_is_in_the_catalogue():
    measured = accuracy_metrics(np.array([0.5, 0.7]), np.array([1, 2]))
    assert measured.keys() <= CATALOGUE.keys()
    fractions = [k for k in measured if k.startswith("accuracy")]
    assert {metric_info(k).factor for k in fractions if k != "accuracy_variance"} == {100.0}
    assert (metric_info("accuracy_variance").factor, metric_info("kl_uniform").factor) == (1e4, 1.0)


def test_names_that_a_run_has_and_others():
    for name in (
        "train_loss",
        "update_norm",
        "client:12",
        "error_rsd_weighted",
        "train_perplexity",
    ):
        assert is_field(name)
    for name in ("accuracy", "client:", "client:x", "round", "", None, 3):
        assert not is_field(name)


def test_numbers_of_validation_examples_come_from_these():
    for name in ("error_mean", "error_rsd", "accuracy_mean", "loss"):
        plain = metric_info("test_loss" if name == "loss" else name)
        assert metric_info(f"val_{name}").needs == tuple(f"val_{key}" for key in plain.needs)
    assert metric_info("val_error_mean").needs == ("val_accuracy_mean",)
