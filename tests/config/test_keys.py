"""Keys that change no numbers, and values as text."""

import inspect

import pytest
from tools import key_of

from fedbench.config.identity import REPORTING_KEYS, setting
from fedbench.config.targets import HISTORY, function_of
from fedbench.core.config_values import config_value


def tree_with(key):
    section, _, name = key.rpartition(".")
    return {section: {name: 1}} if section else {name: 1}


@pytest.mark.parametrize(
    "key",
    ["engine.precision", "data.clients", "data.downloads", "devices", *sorted(REPORTING_KEYS)],
)
def test_keys_that_are_part_of_a_setting(key):
    assert setting(tree_with(key)) == {key: 1}


def test_a_constant_rate_is_the_setting_of_runs_from_before_schedules():
    constant = {
        "schedule": "constant",
        "decay_factor": None,
        "decay_every": 1,
        "decay_at": None,
        "decay_to": 0.0,
    }
    assert setting({"local": {"lr": 0.1, **constant}}) == {"local.lr": 0.1}
    decaying = {
        "local": {
            "lr": 0.1,
            **constant,
            "schedule": "decay",
            "decay_factor": 0.9,
        }
    }
    assert setting(decaying) == {
        "local.lr": 0.1,
        "local.schedule": "decay",
        "local.decay_factor": 0.9,
    }


@pytest.mark.parametrize(
    "target", ["fedbench.data.partition_label", "fedbench.data.partitions.label"]
)
def test_an_option_that_came_later_counts_only_if_it_changes_something(target):
    """Also under the name of the first release; and only for the function that it was added to."""
    rule = {"_target_": f"{target}.consecutive_classes", "more": 5}
    assert setting({"x": {**rule, "as_published": False}}) == setting({"x": rule})
    for section in (
        {**rule, "as_published": True},
        {"_target_": "other.rule", "as_published": False},
    ):
        assert setting({"x": section}) == {f"x.{k}": v for k, v in section.items()}


def test_options_that_came_later_exist_and_have_that_default():
    for target, options in HISTORY["options"].items():
        parameters = inspect.signature(function_of(target, key_of(target))).parameters
        assert {k: parameters[k].default for k in options} == options


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (1.0, "1"), (1, "1"), (0.1, "0.1"), (1e-5, "1e-05"),
        (0.1234567, "0.1234567"),
        ([1, 5.0], "[1,5]"), ("full", "full"), (-0.0, "0"), (1e20, "100000000000000000000"),
    ],
)  # fmt: skip
def test_values_as_they_are_typed(value, text):
    assert config_value(value) == text
    if isinstance(value, float):
        assert float(text) == value
