"""Which scenarios go with which methods, a row per class of methods."""

import re
from typing import get_args

import pytest
import yaml
from tools import ALGORITHMS, CONF, ROOT, federation, make, population_of, stages_of

from fedbench.config.targets import Component
from fedbench.core.algorithm import Algorithm, Averaging, Stage, by_weight
from fedbench.core.errors import RequestError
from fedbench.core.randomness import one_by_one
from fedbench.core.types import Kind
from fedbench.scenarios.allowed import Reason
from fedbench.scenarios.attack import Attack
from fedbench.scenarios.availability import Availability
from fedbench.scenarios.defence import Defence
from fedbench.scenarios.layers import Layer
from fedbench.scenarios.scenario_stack import build_scenarios

POPULATION = population_of(federation())
REASONS = [reason.value for reason in Reason]
NEEDS = (
    "away",
    "partial",
    "message",
    "rule",
    "norm_clip",
    "privacy",
    "up",
    "unsent",
    "down",
    "weights",
)
# a row per class, in the order of NEEDS: 0 is allowed, any other number the place of the reason
TABLE = """
fedavg fedavgm fedprox fedadagrad fedyogi fedadam fedams fedsam propfair: 0 0 0 0 0 0 0 0 0 0
fedsps ditto apfl pfedme local_adam naive_adaptive fedspeed:              0 0 0 0 0 0 0 0 0 0
fednova gifair/form=local:                                                0 0 0 0 0 1 0 0 0 14
term afl/partial=true gifair drfa/snapshot=start drfa adafedadam fedfa:   0 0 0 2 0 1 0 0 0 14
fedheal:                                                                  0 0 0 2 0 1 3 0 0 14
qfedavg fedmgda adafed fedfv fedmdfg fedexp fedcm mofedsam:               0 0 0 4 0 1 0 0 0 14
fedmdfg/step=search:                                                      0 0 0 4 0 1 0 0 12 14
scaffold feddyn fedspeed/server=all:                                      0 0 0 5 5 5 0 5 0 14
mimelite:                                                                 0 0 0 6 6 6 0 0 0 14
mimelite/base=adam:                                                       0 0 0 6 6 6 0 0 7 14
fedcada:                                                                  0 0 7 6 6 6 8 0 7 14
fafed/variant=stateless:                                                  0 15 7 6 6 6 8 0 7 14
afl:                                                                      9 0 0 2 0 1 0 0 0 14
stem:                                                                     9 15 0 6 6 6 8 0 0 14
fafed fafed/variant=code:                                                 9 15 7 6 6 6 8 0 7 14
drfa/snapshot=random drfa/snapshot=2:                                     10 0 0 2 6 1 8 0 0 14
drfa/snapshot_weights=uniform:                                            10 0 0 2 0 1 0 0 0 14
fedcorr:                                                                  11 11 0 11 0 11 0 0 0 14
"""
CELLS = [
    (method, need, int(reason))
    for row in TABLE.strip().splitlines()
    for method in row.split(":")[0].split()
    for need, reason in zip(NEEDS, row.split(":")[1].split(), strict=True)
]


class Asking(Layer):
    """A scenario with needs; the factory of a group."""

    def __init__(self, **needs):
        self.given = needs

    @property
    def needs(self):
        return self.given


def asked(need, stages, target, options):
    asks = Component("test_allowed.Asking", {name: f"group.{name}" for name in need.split()})
    return build_scenarios({"attack": asks}, Component(target, options), stages, POPULATION)


def ask(need, method, **more):
    """Ask for a scenario with a method, as a run does."""
    name, _, switches = method.partition("/")
    config = yaml.safe_load((CONF / "algo" / f"{name}.yaml").read_text())
    given = {
        k: yaml.safe_load(v) for k, v in (s.split("=") for s in switches.split("/") if s)
    } | more
    options = {k: v for k, v in config.items() if k != "_target_"} | given
    made = make(name, **given, **({"iterations": 1} if name == "fedcorr" else {}))
    return asked(need, stages_of(made, 20, 7), config["_target_"], options)


def uniform(method):
    name = method.split("/")[0]
    has = "weights" in yaml.safe_load((CONF / "algo" / f"{name}.yaml").read_text())
    return {"weights": "uniform"} if has else {}


def test_every_method_is_in_the_table():
    assert {method.split("/")[0] for method, _, _ in CELLS} == set(ALGORITHMS)


@pytest.mark.parametrize(("method", "need", "reason"), CELLS, ids=lambda v: str(v))
def test_a_scenario_goes_with_a_method_or_is_refused_with_the_reason(method, need, reason):
    if not reason:
        assert ask(need, method, **uniform(method)).population is POPULATION
        return
    with pytest.raises(RequestError) as error:
        ask(need, method, **uniform(method))
    assert f"group.{need} does not go with algo={method.split('/')[0]}: " in str(error.value)
    assert REASONS[reason - 1] in str(error.value)
    remedy = "set compression.up.feedback=ef" if need == "unsent" else "remove it"
    assert str(error.value).endswith(f"; {remedy}")


def test_the_page_shows_the_table_and_the_reasons():
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    rows = [row.split(":") for row in TABLE.strip().splitlines()]
    shown = []
    for methods, reasons in rows:
        names = ", ".join(f"`{method.replace('/', ' ')}`" for method in methods.split())
        cells = ["yes" if reason == "0" else reason for reason in reasons.split()]
        shown.append(f"| {names} | {' | '.join(cells)} |")
    assert "\n".join(shown) in page
    reasons = [f"{place}. {text[0].upper()}{text[1:]}." for place, text in enumerate(REASONS, 1)]
    assert " ".join(reasons) in " ".join(page.split())
    kinds = re.findall(r'^\| (`"[a-z ]+"`(?:, `"[a-z ]+"`)*) \|', page, flags=re.MULTILINE)
    assert sorted(re.findall('"([a-z ]+)"', " ".join(kinds))) == sorted(get_args(Kind))


@pytest.mark.parametrize("need", ["uniform", "privacy"])
def test_weights_by_size_are_refused_by_privacy_and_by_rules_that_know_none(need):
    with pytest.raises(
        RequestError, match=rf"group\.{need} needs weights .*; set algo.weights=uniform"
    ):
        ask(need, "fedadam", weights="size")


def test_a_clean_scenario_and_changed_data_go_with_every_method():
    """They need nothing of it, messages do, and the geometric median has weights."""
    assert (
        "uniform" not in Defence(population=POPULATION, attackers=0, rule="geometric_median").needs
    )
    assert all(Attack(population=POPULATION, data=data).needs == {} for data in ("none", "flip"))
    assert "message" in Attack(population=POPULATION, message="ipm").needs


def mean(**fields):
    return Algorithm(update=Averaging(lambda s, u, c: s, {"delta": by_weight}), **fields)


def step_of_its_own(**fields):
    return Algorithm(update=lambda server, uploads, cohort: server, **fields)


UNKNOWN = (0, 0, 0, 13, 13, 13, 13, 0, 13, 13)
# as the rows of TABLE
OWN = {
    "by default": (Algorithm(weights="uniform"), (0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
    "one sum": (mean(weights="uniform"), (0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
    "numbers": (mean(needs=frozenset({"loss"})), (0, 0, 0, 0, 0, 1, 0, 0, 0, 14)),
    "a step of its own": (step_of_its_own(), UNKNOWN),
    "weights of its own": (
        Algorithm(update=Averaging(lambda s, u, c: s, {"delta": lambda s, c: c.n})),
        UNKNOWN,
    ),
    "several": (
        Algorithm(update=Averaging(lambda s, u, c: s, dict.fromkeys("dm", by_weight))),
        UNKNOWN,
    ),
    "declared numbers": (mean(kinds=("numbers",)), (0, 0, 0, 0, 0, 1, 0, 0, 0, 14)),
    "declared every": (step_of_its_own(kinds=("every",)), (0, 0, 0, 4, 0, 1, 0, 0, 0, 14)),
    "declared moments": (
        step_of_its_own(kinds=("several", "moments")),
        (0, 0, 7, 6, 6, 6, 0, 0, 7, 14),
    ),
}


@pytest.mark.parametrize("form", OWN)
def test_a_method_of_ones_own_is_known_by_its_step_and_what_it_declares(form):
    """Whatever its name is."""
    algo, reasons = OWN[form]
    for need, reason in zip(NEEDS, reasons, strict=True):
        if not reason:
            asked(need, [Stage(algo, 3)], "mine.scaffold", {})
            continue
        with pytest.raises(RequestError, match=re.escape(REASONS[reason - 1])):
            asked(need, [Stage(algo, 3)], "mine.scaffold", {})


def test_what_a_method_declares_is_checked():
    with pytest.raises(
        RequestError, match="kinds must be one of numbers, .*did you mean integrates"
    ):
        Algorithm(kinds=("integrate",))


def test_every_stage_counts_and_one_with_a_sampler_of_its_own_needs_everybody():
    plain, special = Stage(Algorithm(), 2), Stage(step_of_its_own(), 2)
    with pytest.raises(RequestError, match="does not declare how"):
        asked("up", [plain, special], "mine.method", {})
    with pytest.raises(RequestError, match="visits every client once"):
        asked("away", [plain._replace(sampler=one_by_one)], "mine.method", {})
    asked("message", [plain._replace(sampler=one_by_one)], "mine.method", {})


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        ("privacy chosen", "more than a coin of known rate"),
        ("privacy rule", "its sensitivity is not C/m̃"),
        ("privacy norm_clip", "its sensitivity is not C/m̃"),
        ("privacy weights", "its weights are the same for all"),
        ("rule weights", "a rule knows no weights"),
    ],
)
def test_scenarios_that_exclude_each_other(needs, why):
    first, second = needs.split()
    with pytest.raises(
        RequestError,
        match=rf"group\.{second} does not go with group\.{first}: .*{why}.*; remove one",
    ):
        ask(needs, "fedavg", weights="uniform")
    ask("privacy away", "fedavg", weights="uniform")  # results that are lost by a coin


def test_what_availability_needs():
    def late(round, ids, tau):
        raise AssertionError

    assert Availability().needs == {}
    assert set(Availability(lost=0.1).needs) == {"away"}
    assert set(Availability(chances=late).needs) == {"away", "chosen"}
    assert set(Availability(late=late).needs) == {"away", "chosen"}
    assert set(Availability(late=late, partial=True).needs) == {"partial"}
    assert Availability(weights="zero").needs == {"weights": "availability.weights=zero"}
