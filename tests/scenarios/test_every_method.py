"""All methods with all scenarios: they run, stay finite and resume to the last bit, or are refused
with the reason.
"""

from functools import cache
from pathlib import Path

import pytest
import torch
from snapshot_checks import bits, costs
from test_allowed import CELLS, REASONS, configured
from tools import federation, snapshots, stages_of

from fedbench.config.compose import compose_run
from fedbench.core.errors import RequestError
from fedbench.scenarios.population import Population
from fedbench.scenarios.scenario_stack import build_scenarios
from fedbench.simulation.local_work import LocalWork

DATA = federation()
WORK = LocalWork(0.1, 10, (2, 2))
REFUSED = {(method, need): reason for method, need, reason in CELLS}
METHODS = dict.fromkeys(method for method, _, _ in CELLS)
TABLE = Path(__file__).with_name("scenarios.txt").read_text(encoding="utf-8")
SCENARIOS = [row.split(" | ") for row in TABLE.splitlines() if not row.startswith("#")]


@cache
def chosen(settings):
    more = ["attack.clients=2"] if "attack=" in settings else []
    return compose_run([*settings.split(), *more]).scenarios


def reasons_of(method, needs):
    """The reasons to refuse one of the needs."""
    places = {REFUSED.get((method, need), 0) for need in needs.split()}
    return [REASONS[place - 1] for place in places - {0}]


@pytest.mark.parametrize(("settings", "needs"), SCENARIOS)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(
            m,
            marks=[] if m in ("ditto", "adafed") else [pytest.mark.slow],
        )
        for m in METHODS
    ],
)
def test_runs_and_resumes_or_is_refused(method, settings, needs):
    if "privacy" in settings:
        pytest.importorskip("dp_accounting")
    algo, component = configured(method)
    rounds = 10 if method == "fedcorr" else 3
    population = Population(
        seed=0,
        data=DATA,
        work=WORK,
        participation=0.7 if "privacy" in settings else 1.0,
        rounds=rounds,
        shapes=((3, 6), (3,)),
    )

    def around():
        stages = stages_of(algo, rounds, 7)
        return build_scenarios(chosen(settings), component, stages, population)

    def run(**resume):
        how = {"rounds": rounds, "work": WORK, "scenario": around()}
        return snapshots(algo, DATA, **how, **resume)

    if reasons := reasons_of(method, needs):
        with pytest.raises(RequestError) as error:
            around()
        assert any(reason in str(error.value) for reason in reasons)
        return
    whole = run()
    models = [s.server["w"] for s in whole]
    assert all(w.isfinite().all() for w in models)
    # opposite vectors have no direction of common descent; a client with one class does not move
    # with fedlc, and krum selects it
    stuck = (method.startswith("fedmdfg") and settings == "attack=ipm") or (
        method == "fedlc" and settings == "defence=krum"
    )
    assert stuck == all(torch.equal(models[0], w) for w in models)

    resumed = run(resume=whole[-2])
    assert bits(resumed[-1].server) == bits(whole[-1].server)
    assert bits(resumed[-1].clients) == bits(whole[-1].clients)
    assert costs(resumed[-1]) == costs(whole[-1])
