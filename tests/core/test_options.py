"""Schedules of the local learning rate: their factors, and what is refused."""

import functools
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import pytest
import torch
from pydantic import Field

from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.core.options import Count, NonNegative, Positive, Schedule, UnitInterval
from fedbench.core.validation import checked


def factors(rounds=6, **options):
    return [Schedule(rounds=rounds, **options).factor(t) for t in range(rounds)]


def test_factors_by_hand():
    assert factors() == [1.0] * 6
    assert factors(schedule="decay", decay_factor=0.5) == [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32]
    assert factors(schedule="decay", decay_factor=0.5, decay_every=4) == [1, 1, 1, 1, 1 / 2, 1 / 2]
    assert factors(schedule="step", decay_factor=0.5, decay_at=(2, 3, 10)) == [
        1,
        1,
        1 / 2,
        1 / 4,
        1 / 4,
        1 / 4,
    ]
    assert Schedule(rounds=0, schedule="cosine").factor(0) == 1
    half = math.sqrt(3) / 2
    expected = [1, (1 + half) / 2, 0.75, 0.5, 0.25, (1 - half) / 2]
    assert factors(schedule="cosine") == pytest.approx(expected, rel=1e-14)
    assert factors(schedule="cosine", decay_to=0.2) == pytest.approx(
        [0.2 + 0.8 * v for v in expected], rel=1e-14
    )


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_cosine_and_steps_are_those_of_torch(floor):
    def rates(schedule, **options):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
        scheduler, found = schedule(optimizer, **options), []
        for _ in range(9):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return found

    lrs = torch.optim.lr_scheduler
    theirs = rates(lrs.CosineAnnealingLR, T_max=9, eta_min=floor * 0.5)
    assert [0.5 * f for f in factors(9, schedule="cosine", decay_to=floor)] == pytest.approx(
        theirs, rel=1e-12
    )
    theirs = rates(lrs.MultiStepLR, milestones=[2, 5], gamma=0.3)
    assert [
        0.5 * f for f in factors(9, schedule="step", decay_factor=0.3, decay_at=(2, 5))
    ] == pytest.approx(theirs)
    theirs = rates(lrs.StepLR, step_size=4, gamma=0.3)
    assert [
        0.5 * f for f in factors(9, schedule="decay", decay_factor=0.3, decay_every=4)
    ] == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            ["schedule=decays"],
            r"local\.schedule must be one of constant, decay, step, cosine; .*did you mean decay",
        ),
        (
            ["schedule=decay"],
            r"local\.decay_factor must be > 0 and <= 1, got null; .*; 0\.99, for example",
        ),
        (["schedule=decay", "decay_factor=1.1"], r"local\.decay_factor must be <= 1, got 1\.1"),
        (
            ["decay_factor=0.9"],
            r"local\.decay_factor belongs to local\.schedule=decay and step, .* is constant",
        ),
        (
            ["schedule=cosine", "decay_every=2"],
            r"local\.decay_every belongs to local\.schedule=decay, .* is cosine",
        ),
        (
            ["schedule=decay", "decay_factor=0.9", "decay_at=[3]"],
            r"local\.decay_at belongs to local\.schedule=step",
        ),
        (
            ["schedule=step", "decay_factor=0.9", "decay_to=0.5"],
            r"local\.decay_to belongs to local\.schedule=cosine",
        ),
        (
            ["schedule=step", "decay_factor=0.9"],
            r"local\.decay_at must be an ascending list of rounds",
        ),
        (
            ["schedule=step", "decay_factor=0.9", "decay_at=5"],
            r"local\.decay_at must be a list, got 5",
        ),
        (
            ["schedule=step", "decay_factor=0.9", "decay_at=[5,5]"],
            r"local\.decay_at must be an ascending list .* got \[5, 5\]",
        ),
        (
            ["schedule=step", "decay_factor=0.9", "decay_at=[0]"],
            r"local\.decay_at must be >= 1, got 0",
        ),
        (
            ["schedule=decay", "decay_factor=0.1"],
            r"local\.schedule makes the learning rate 1e-101 in round 100",
        ),
        (["schedule=cosine", "decay_to=1"], r"local\.decay_to must be < 1, got 1"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_is_refused(typed, message):
    with pytest.raises(RequestError, match=message):
        compose_run([f"local.{t}" for t in typed])


def test_a_run_has_the_schedule_that_was_typed():
    local = compose_run(
        ["rounds=8", "local.schedule=step", "local.decay_factor=0.1", "local.decay_at=[4,6]"]
    ).local
    assert local.schedule == Schedule("step", decay_factor=0.1, decay_at=(4, 6), rounds=8)
    assert compose_run([]).local.schedule == Schedule(rounds=100)


def test_a_schedule_is_part_of_the_identity_and_a_constant_rate_is_not():
    digests = [
        compose_run([f"local.{t}" for t in typed]).digest
        for typed in (
            [],
            ["schedule=constant"],
            ["schedule=cosine"],
            ["schedule=decay", "decay_factor=0.9"],
        )
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def _declares(
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0}, "lr must be > 0, got 0"),
        ({"share": 1.5}, "share must be <= 1, got 1.5"),
        ({"share": None}, "share must be a number, got null"),
        ({"scale": -1}, "scale must be auto or >= 0, got -1"),
        ({"scale": "none"}, "scale must be auto or a number, got 'none'"),
        ({"count": 0.5}, "count must be auto or an integer, got 0.5"),
        ({"kind": "b"}, "kind must be one of a, 1; got 'b'"),
        ({"some": 1}, "some must be true or false, got 1"),
        ({"whole": "x"}, "whole must be an integer, got 'x'"),
    ],
)
def test_annotations_declare_what_an_option_may_be(given, message):
    with pytest.raises(RequestError) as error:
        checked(_declares, given)
    assert str(error.value) == message


def test_declared_values_pass_as_what_they_are_declared_to_be():
    """Whole numbers of real options become real; what no annotation declares is left to the function."""
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
    found = checked(_declares, given)
    assert found == given
    assert [type(found[k]) for k in ("lr", "share", "count", "kind")] == [float, float, int, int]


class _Made:
    def __init__(self, width: Annotated[Count, "a note", Field(gt=1, le=5)] = 2):
        self.width = width


class _Inherits(_Made):
    width: str


def test_a_constructor_that_is_inherited_declares_and_every_bound_of_an_integer_counts():
    assert checked(_Inherits, {"width": 5.0}) == {"width": 5}
    for value in (1, 6, 2.5):
        with pytest.raises(RequestError, match="width must be"):
            checked(_Inherits, {"width": value})


def test_what_cannot_be_read_declares_nothing_and_the_rest_does():
    def f(x: Positive = 1, y: "Sequences[int]" = (), z: "the strength" = 1):  # noqa: F821, F722
        """Annotations for other readers."""

    assert checked(f, {"x": 2, "y": 3, "z": {}}) == {"x": 2.0, "y": 3, "z": {}}
    with pytest.raises(RequestError, match="x must be > 0"):
        checked(f, {"x": -1})
    assert checked(functools.partial(f, 1), {"y": 3}) == {"y": 3}
