"""Schedules of the local learning rate, and options as a function's annotations declare them."""

import functools
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import Field

from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.core.options import Count, NonNegative, Positive, Schedule, UnitInterval
from fedbench.core.validation import checked

COSINE = [1, (2 + math.sqrt(3)) / 4, 0.75, 0.5, 0.25, (2 - math.sqrt(3)) / 4]


@pytest.mark.parametrize(
    ("options", "factors"),
    [
        ({}, [1] * 6),
        ({"schedule": "decay", "decay_factor": 0.5}, [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32]),
        ({"schedule": "decay", "decay_factor": 0.5, "decay_every": 4}, [1, 1, 1, 1, 1 / 2, 1 / 2]),
        (
            {"schedule": "step", "decay_factor": 0.5, "decay_at": (2, 3, 10)},
            [1, 1, 1 / 2, 1 / 4, 1 / 4, 1 / 4],
        ),
        ({"schedule": "cosine"}, COSINE),
        ({"schedule": "cosine", "decay_to": 0.2}, [0.2 + 0.8 * f for f in COSINE]),
    ],
)
def test_factors_by_hand(options, factors):
    schedule = Schedule(rounds=6, **options)
    assert [schedule.factor(t) for t in range(6)] == pytest.approx(factors, rel=1e-14)


def test_the_cosine_of_no_rounds_is_one():
    assert Schedule(rounds=0, schedule="cosine").factor(0) == 1


# typed options of local | the message, a regular expression
REFUSED = r"""
schedule=decays | schedule must be one of constant, decay, step, cosine; .*mean decay
schedule=decay | decay_factor must be > 0 and <= 1, got null; .*; 0\.99, for example
schedule=decay decay_factor=1.1 | decay_factor must be <= 1, got 1\.1
decay_factor=0.9 | decay_factor belongs to .*=decay and step, .* is constant
schedule=cosine decay_every=2 | decay_every belongs to .*=decay, .* is cosine
schedule=step decay_factor=0.9 | decay_at must be an ascending list of rounds
schedule=step decay_factor=0.9 decay_at=5 | decay_at must be a list, got 5
schedule=step decay_factor=0.9 decay_at=[5,5] | ascending list .* got \[5, 5\]
schedule=step decay_factor=0.9 decay_at=[0] | decay_at must be >= 1, got 0
schedule=decay decay_factor=0.1 | schedule makes the learning rate 1e-101 in .* 100
schedule=cosine decay_to=1 | decay_to must be < 1, got 1
"""


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_schedules_that_are_refused(row):
    typed, message = row.split(" | ")
    with pytest.raises(RequestError, match=rf"local\..*{message}"):
        composed(typed)


def composed(typed):
    """The configuration with these options of local."""
    return compose_run(["rounds=100", *(f"local.{option}" for option in typed.split())])


def test_a_run_has_the_schedule_that_was_typed():
    local = composed("schedule=step decay_factor=0.1 decay_at=[4,6]").local
    expected = Schedule(
        "step",
        decay_factor=0.1,
        decay_at=(4, 6),
        rounds=100,
    )
    assert local.schedule == expected


def declares(
    lr: Positive | None = None,
    share: UnitInterval = 0.5,
    scale: NonNegative | Literal["auto"] = "auto",
    count: Count | Literal["auto"] = 1,
    kind: Literal["a", 1] = "a",
    some: bool = False,
    of: Sequence[int] = (),
    whole: int = 0,
):
    """Options of every kind."""


# a value, and the message
WRONG = """
lr: 0 | lr must be > 0, got 0
share: null | share must be a number, got null
scale: -1 | scale must be auto or >= 0, got -1
count: 0.5 | count must be auto or an integer, got 0.5
kind: b | kind must be one of a, 1; got 'b'
some: 1 | some must be true or false, got 1
"""


@pytest.mark.parametrize("row", WRONG.strip().splitlines())
def test_annotations_declare_the_values_of_an_option(row):
    given, message = row.split(" | ")
    with pytest.raises(RequestError) as error:
        checked(declares, yaml.safe_load(given))
    assert str(error.value) == message


def test_declared_values_pass_with_their_declared_type():
    """Whole numbers of real options become real; options that no annotation declares are left to
    the function.
    """
    given = {
        "lr": 1,
        "share": 0,
        "scale": "auto",
        "count": 2.0,
        "kind": 1,
        "some": True,
        "of": [1],
        "other": {},
    }
    options = checked(declares, given)
    assert options == given
    assert [type(options[k]) for k in ("lr", "share", "count", "kind")] == [float, float, int, int]


class Made:
    def __init__(self, width: Annotated[Count, "a note", Field(gt=1, le=5)] = 2):
        self.width = width


class Inherits(Made):
    width: str


@pytest.mark.parametrize("width", [1, 6, 2.5])
def test_an_inherited_constructor_declares_and_every_bound_of_an_integer_counts(width):
    assert checked(Inherits, {"width": 5.0}) == {"width": 5}
    with pytest.raises(RequestError, match="width must be"):
        checked(Inherits, {"width": width})


def test_annotations_that_cannot_be_read_declare_nothing_and_the_others_do():
    def f(x: Positive = 1, y: "Sequences[int]" = (), z: "the strength" = 1):  # noqa: F821, F722
        """Annotations for other readers."""

    assert checked(f, {"x": 2, "y": 3, "z": {}}) == {"x": 2.0, "y": 3, "z": {}}
    with pytest.raises(RequestError, match="x must be > 0"):
        checked(f, {"x": -1})
    assert checked(functools.partial(f, 1), {"y": 3}) == {"y": 3}
