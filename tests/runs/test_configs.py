"""Configurations that share what their seeds have in common are those that YAML reads."""

from __future__ import annotations

import json

import pytest

from fedbench.core.trees import from_yaml
from fedbench.runs.configs import config_of, config_of_json

_TEXT = "rounds: 5\nlocal:\n  lr: 0.1\nseed: {}\ndata:\n  seed: 3\n"


@pytest.mark.parametrize("seed", [0, 7, 123456])
def test_seeds_of_a_setting_have_their_own_seed_and_all_else_in_common(seed: int) -> None:
    text = _TEXT.format(seed)
    assert config_of(text) == from_yaml(text)
    assert list(config_of(text)) == ["rounds", "local", "seed", "data"]
    assert config_of(text)["local"] is config_of(_TEXT.format(1))["local"]


@pytest.mark.parametrize(
    "text",
    [
        _TEXT.format("null"),
        _TEXT.format("010"),  # octal in YAML
        _TEXT.format("1") + "seed: 2\n",  # the last one counts
        "rounds: 5\nnote: >2\n  x\n\nother:\n  seed: 4\n",
        "rounds: 5\nlocal: 'a\nseed: 9\n  b'\n",  # the line is text
        "rounds: 5\n'seed': 8\nlocal: \"a\nseed: 9\n  b\"\n",
    ],
)
def test_a_seed_that_is_no_plain_line_is_read_as_yaml_reads_it(text: str) -> None:
    assert config_of(text) == from_yaml(text)
    assert config_of(text) == from_yaml(text)  # nothing is kept that spoils it


@pytest.mark.parametrize("seed", [0, 7, 10**15])
def test_seeds_of_a_setting_in_json_have_all_else_in_common(seed: int) -> None:
    config = {"rounds": 5, "local": {"lr": 0.1}, "seed": seed, "data": {"seed": 3}}
    found = config_of_json(json.dumps(config))
    assert (found, list(found)) == (config, list(config))
    assert found["local"] is config_of_json(json.dumps({**config, "seed": 1}))["local"]


@pytest.mark.parametrize("seed", [4, None, 10**17, 1e17])
def test_the_seed_of_a_section_stays_where_it_is(seed: object) -> None:
    config = {"rounds": 5, "data": {"seed": 3}, "seed": seed}
    other = {**config, "data": {"seed": 6}}
    assert repr(config_of_json(json.dumps(config))) == repr(config)
    assert repr(config_of_json(json.dumps(other))) == repr(other)


@pytest.mark.parametrize("seed", [None, True, -1, 10**17, 1.5])
def test_another_seed_in_json_is_what_it_is(seed: object) -> None:
    config = {"rounds": 5, "seed": seed}
    assert repr(config_of_json(json.dumps(config))) == repr(config)
    assert repr(config_of_json(json.dumps({"rounds": 5}))) == "{'rounds': 5}"


def test_a_digit_of_another_script_is_no_json() -> None:
    with pytest.raises(json.JSONDecodeError):
        config_of_json('{"rounds": 5, "seed": 1\N{ARABIC-INDIC DIGIT THREE}}')


def test_a_message_is_about_the_text_itself() -> None:
    with pytest.raises(ValueError, match=r"got \[\{'seed': 3\}\]"):
        config_of_json('[{"seed": 3}]')
    with pytest.raises(ValueError, match=r"char 25"):
        config_of_json('{"rounds": 5, "seed": 3} x')


@pytest.mark.parametrize("text", ['{"seed": 1}', "[1]", '{"rounds": [], "seed": 1}'])
def test_json_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"config.yaml"):
        config_of_json(text)
