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
from fedbench.scenarios.availability import Availability
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
fedper lgfedavg fedrep fedbn silobn fixbn fedavg_ft fedbabu:              0 0 0 0 0 0 0 0 0 0
moon fedntd fedlc feddecorr fedrod:                                       0 0 0 0 0 0 0 0 0 0
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
local:                                                                 0 0 18 18 18 18 18 18 18 18
fedamp:                                                                9 0 18 18 18 18 18 18 18 18
drfa/snapshot_weights=uniform:                                            10 0 0 2 0 1 0 0 0 14
fedcorr:                                                                  11 11 0 11 0 11 0 0 0 14
"""
CELLS = [
    (method, need, int(reason))
    for row in TABLE.strip().splitlines()
    for method in row.split(":")[0].split()
    for need, reason in zip(
        NEEDS,
        row.split(":")[1].split(),
        strict=True,
    )
]


class Asking(Layer):
    """A scenario with needs; the factory of a group."""

    def __init__(self, **needs):
        self.given = needs

    @property
    def needs(self):
        return self.given


def asked(need, stages, component):
    """The scenarios around a method, with a layer that has these needs."""
    needs = {name: f"group.{name}" for name in need.split()}
    choices = {"attack": Component("test_allowed.Asking", needs)}
    return build_scenarios(choices, component, stages, POPULATION)


def configured(method, **more):
    """The method of a row with its switches, and the section that a run would have for it."""
    name, *switches = method.split("/")
    config = yaml.safe_load((CONF / "algo" / f"{name}.yaml").read_text())
    given = {}
    for switch in switches:
        option, value = switch.split("=")
        given[option] = yaml.safe_load(value)
    if "weights" in config:
        given["weights"] = "uniform"
    given |= more
    target = config.pop("_target_")
    short = {"iterations": 1} if name == "fedcorr" else {}
    return make(name, **given, **short), Component(target, config | given)


def ask(need, method, **more):
    """Ask for a scenario with a method, as a run does."""
    algo, component = configured(method, **more)
    return asked(
        need,
        stages_of(algo, 20, 7),
        component,
    )


def test_every_method_is_in_the_table():
    assert {method.split("/")[0] for method, _, _ in CELLS} == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("method", "need", "reason"),
    CELLS,
    ids=str,
)
def test_a_scenario_goes_with_a_method_or_is_refused_with_the_reason(method, need, reason):
    if not reason:
        assert ask(need, method).population is POPULATION
        return
    with pytest.raises(RequestError) as error:
        ask(need, method)
    message = str(error.value)
    assert f"group.{need} does not go with algo={method.split('/')[0]}: " in message
    assert REASONS[reason - 1] in message
    remedy = "set compression.up.feedback=ef" if need == "unsent" else "remove it"
    assert message.endswith(f"; {remedy}")


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
    assert " ".join(reasons) in " ".join(page.replace("`", "").split())
    kinds = re.findall(r'^\| (`"[a-z ]+"`(?:, `"[a-z ]+"`)*) \|', page, flags=re.MULTILINE)
    assert sorted(re.findall('"([a-z ]+)"', " ".join(kinds))) == sorted(get_args(Kind))


@pytest.mark.parametrize("need", ["uniform", "privacy"])
def test_weights_by_size_are_refused_by_privacy_and_by_rules_that_know_none(need):
    message = rf"group\.{need} needs weights .*; set algo.weights=uniform"
    with pytest.raises(RequestError, match=message):
        ask(need, "fedadam", weights="size")


def test_chances_of_clients_decide_who_is_chosen():
    assert set(Availability(chances=lambda round: None).needs) == {"away", "chosen"}


# ---- methods of one's own


def averaging(*names, weight=by_weight):
    """An update that sums these vectors."""
    return Averaging(lambda server, uploads, cohort: server, dict.fromkeys(names, weight))


def step(server, uploads, cohort):
    """An update that does not declare how it uses the uploads."""
    return server


ANY = "0 0 0 0 0 0 0 0 0 0"
UNKNOWN = "0 0 0 13 13 13 13 0 13 13"
NUMBERS = "0 0 0 0 0 1 0 0 0 14"
# with reasons as in the rows of TABLE
OWN = {
    "by default": ({"weights": "uniform"}, ANY),
    "numbers": ({"update": averaging("delta"), "needs": frozenset({"loss"})}, NUMBERS),
    "a step of its own": ({"update": step}, UNKNOWN),
    "weights of its own": (
        {
            "update": averaging(
                "delta",
                weight=lambda s, c: c.n,
            )
        },
        UNKNOWN,
    ),
    "several": ({"update": averaging("d", "m")}, UNKNOWN),
    "declared numbers": ({"update": averaging("delta"), "kinds": ("numbers",)}, NUMBERS),
    "declared every": ({"update": step, "kinds": ("every",)}, "0 0 0 4 0 1 0 0 0 14"),
    "declared moments": ({"update": step, "kinds": ("several", "moments")}, "0 0 7 6 6 6 0 0 7 14"),
}
MINE = Component("mine.scaffold", {})


@pytest.mark.parametrize("form", OWN)
def test_a_method_of_ones_own_is_known_by_its_step_and_what_it_declares(form):
    """Whatever its name is."""
    fields, reasons = OWN[form]
    stages = [Stage(Algorithm(**fields), 3)]
    for need, reason in zip(
        NEEDS,
        map(int, reasons.split()),
        strict=True,
    ):
        if not reason:
            asked(need, stages, MINE)
            continue
        with pytest.raises(
            RequestError,
            match=re.escape(REASONS[reason - 1]),
        ):
            asked(need, stages, MINE)


def test_kinds_that_do_not_exist_are_refused():
    message = "kinds must be one of numbers, .*did you mean integrates"
    with pytest.raises(RequestError, match=message):
        Algorithm(kinds=("integrate",))


def test_every_stage_counts_and_one_with_a_sampler_of_its_own_needs_everybody():
    plain = Stage(Algorithm(), 2)
    with pytest.raises(RequestError, match="does not declare how"):
        asked(
            "up",
            [plain, Stage(Algorithm(update=step), 2)],
            MINE,
        )
    visits = [plain._replace(sampler=one_by_one)]
    with pytest.raises(RequestError, match="visits every client once"):
        asked("away", visits, MINE)
    asked("message", visits, MINE)


# ---- scenarios that exclude each other


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("privacy", "chosen", "more than coin flips at a known rate"),
        ("privacy", "rule", "its sensitivity is not C/m̃"),
        ("privacy", "norm_clip", "its sensitivity is not C/m̃"),
        ("privacy", "weights", "its weights are the same for all"),
        ("rule", "weights", "a rule knows no weights"),
    ],
)
def test_scenarios_that_exclude_each_other(first, second, why):
    message = rf"group\.{second} does not go with group\.{first}: .*{why}.*; remove one"
    with pytest.raises(RequestError, match=message):
        ask(f"{first} {second}", "fedavg")


def test_privacy_goes_with_results_that_are_lost_by_a_coin():
    ask("privacy away", "fedavg")
