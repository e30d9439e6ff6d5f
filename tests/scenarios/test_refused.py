"""Options of scenarios that are refused before training."""

from pathlib import Path

import pytest
import yaml
from tools import population_of

from fedbench.config.targets import Component, call
from fedbench.core.errors import RequestError

TABLE = Path(__file__).with_name("refused.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("factory", "options", "message"),
    yaml.safe_load(TABLE),
    ids=str,
)
def test_the_message_names_the_option_and_the_allowed_values(factory, options, message):
    group = factory.partition(".")[0]
    if group == "privacy":
        pytest.importorskip("dp_accounting")
    if group == "compression":
        options = {"up": {}, "down": {"feedback": "none"}} | options
    component = Component(f"fedbench.scenarios.{factory}", options)
    everybody = population_of(
        [5] * 10,
        rounds=3,
        shapes=((5,), (3,)),
    )
    with pytest.raises(RequestError) as error:
        call(
            component,
            group,
            population=everybody,
            attackers=0,
        )
    assert f"{group}." in str(error.value)
    assert message in str(error.value)
