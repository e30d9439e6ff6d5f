"""Keys that change no numbers, and values as text."""

import pytest

from fedbench.config.keys import WATCHING, changes_no_numbers, setting
from fedbench.core.trees import config_value


def test_places_and_the_engine_but_for_its_precision_change_no_numbers():
    for key in ("device", "results_dir", "tracker.project", "engine.mode", "engine.client_state", "data.download"):
        assert changes_no_numbers(key)
    for key in ("engine.precision", "data.clients", "data.downloads", "seed", "devices", *WATCHING):
        assert not changes_no_numbers(key)


def test_the_setting_of_a_configuration():
    config = {"seed": 3, "rounds": 5, "engine": {"mode": "loop", "precision": "float32"}, "data": {"download": True}}
    assert setting(config) == {"rounds": 5, "engine.precision": "float32"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"), (True, "true"), (1.0, "1"), (1, "1"), (0.1, "0.1"), (1e-5, "1e-05"), (0.1234567, "0.1234567"),
        ([1, 5.0], "[1,5]"), ("full", "full"), (-0.0, "0"), (1e20, "100000000000000000000"),
    ],
)  # fmt: skip
def test_values_as_they_are_typed(value, text):
    assert config_value(value) == text
    if isinstance(value, float):
        assert float(text) == value
