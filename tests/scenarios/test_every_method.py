"""All methods with all scenarios: they run, stay finite and resume to the last bit, or are refused with the reason."""

from functools import cache
from math import isnan

import pytest
import torch
import yaml
from test_allowed import CELLS, REASONS, uniform
from tools import CONF, federation, make, snapshots, stages_of

from fedbench.config.compose import compose_run
from fedbench.config.targets import Component
from fedbench.core.errors import RequestError
from fedbench.scenarios.population import Population
from fedbench.scenarios.scenario_stack import build_scenarios
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.scenario import round_columns

DATA, WORK = federation(), LocalWork(0.1, 10, (2, 2))
REFUSED = {(method, need): reason for method, need, reason in CELLS}
METHODS = [*dict.fromkeys(method for method, _, _ in CELLS)]
# the settings of a scenario: what it needs of a method
SCENARIOS = {
    "availability=bernoulli availability.p=0.4": "away",
    "availability=clients": "away",
    "availability=clients availability.by=size availability.p=0.2": "away",
    "availability=clients availability.by=labels": "away",
    "availability=cyclic availability.groups=2": "away",
    "availability=cyclic availability.pattern=sine": "away",
    "availability=stragglers": "away",
    "availability=stragglers availability.late=partial": "partial",
    "availability=stragglers availability.kind=share availability.late=partial": "partial",
    "availability=bernoulli availability.weights=zero": "away weights",
    "availability=bernoulli availability.weights=inverse": "away weights",
    "attack=flip": "",
    "attack=flip attack.loss_scale=2": "",
    "attack=pair attack.data=none": "",
    "attack=sign_flip": "message",
    "attack=gaussian": "message",
    "attack=alie": "message",
    "attack=ipm": "message",
    "attack=scale": "message",
    "defence=median": "rule",
    "defence=trimmed_mean": "rule",
    "defence=krum": "rule",
    "defence=multi_krum defence.before=nnm": "rule",
    "defence=geometric_median defence.before=bucketing": "rule",
    "defence=centered_clipping defence.before=both": "rule",
    "defence=bulyan": "rule",
    "defence=norm_clip": "norm_clip",
    "attack=alie defence=krum compression=sign availability=bernoulli": "away message rule up",
    "privacy=central": "privacy",
    "privacy=central privacy.clip=adaptive privacy.count_noise=1": "privacy",
    "privacy=central privacy.sampling=fixed compression=top_k availability=bernoulli": "away privacy up",
    "compression=top_k compression.up.ratio=0.2": "up",
    "compression=top_k compression.up.feedback=ef21": "up unsent",
    "compression=random_k compression.up.ratio=0.3": "up unsent",
    "compression=qsgd compression.up.feedback=ef compression.down.kind=qsgd": "up down",
    "compression=sign": "up",
    "compression=power compression.up.rank=1": "up",
    "compression=top_k compression.up.kind=none compression.down.kind=top_k compression.down.ratio=0.2": "down",
}


@cache
def chosen(words):
    return compose_run(
        [*words.split(), "attack.clients=2"] if "attack=" in words else words.split()
    ).scenarios


def reasons_of(method, needs):
    found = {REFUSED.get((method, need), 0) for need in needs}
    return [REASONS[reason - 1] for reason in found - {0}]


@pytest.mark.parametrize("words", SCENARIOS)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=[] if m in ("ditto", "adafed") else [pytest.mark.slow])
        for m in METHODS
    ],
)
def test_runs_and_resumes_or_is_refused(method, words):
    if "privacy" in words:
        pytest.importorskip("dp_accounting")
    name, _, switches = method.partition("/")
    config = yaml.safe_load((CONF / "algo" / f"{name}.yaml").read_text())
    given = {
        k: yaml.safe_load(v) for k, v in (s.split("=") for s in switches.split("/") if s)
    } | uniform(method)
    rounds = 10 if name == "fedcorr" else 3
    algo = make(name, **given, **({"iterations": 1} if name == "fedcorr" else {}))
    component = Component(config.pop("_target_"), config | given)
    part = 0.7 if "privacy" in words else 1.0
    population = Population(0, DATA, WORK, part, rounds, shapes=((3, 6), (3,)))

    def around():
        return build_scenarios(chosen(words), component, stages_of(algo, rounds, 7), population)

    if why := reasons_of(method, SCENARIOS[words].split()):
        with pytest.raises(RequestError) as error:
            around()
        assert any(reason in str(error.value) for reason in why)
        return
    whole = snapshots(algo, DATA, rounds=rounds, work=WORK, scenario=around())
    rest = snapshots(algo, DATA, rounds=rounds, work=WORK, scenario=around(), resume=whole[-2])
    assert all(s.server["w"].isfinite().all() for s in whole)
    # opposite vectors have no direction of common descent
    stuck = name == "fedmdfg" and words == "attack=ipm"
    assert stuck == all(torch.equal(whole[0].server["w"], s.server["w"]) for s in whole)
    a, b = whole[-1], rest[-1]
    for mine, theirs in ((a.server, b.server), (a.clients, b.clients)):
        assert {k: v.numpy().tobytes() for k, v in mine.items()} == {
            k: v.numpy().tobytes() for k, v in theirs.items()
        }
    assert (a.bytes_up, a.bytes_down, a.client_steps) == (b.bytes_up, b.bytes_down, b.client_steps)


def test_privacy_adds_its_noise_where_nobody_sends_a_compressed_update():
    pytest.importorskip("dp_accounting")
    algo, target = make("fedavg", weights="uniform"), "fedbench.algorithms.fedavg.fedavg"
    everybody = Population(0, DATA, WORK, participation=1e-9, rounds=2)
    asked = chosen("privacy=central compression=top_k")
    scenario = build_scenarios(asked, Component(target, {}), stages_of(algo, 2, 7), everybody)
    found = snapshots(algo, DATA, rounds=2, work=WORK, scenario=scenario)
    assert [len(s.cohort) for s in found] == [0, 0, 0]
    assert not torch.equal(found[1].server["w"], found[2].server["w"])
    assert isnan(round_columns(found[2].server)["compression_error"])
