"""Cohorts selected by losses: who is asked, who is selected, and what it costs."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from command_line import FAST
from tools import federation, make, population_of, snapshots, task_for
from torch import nn

import fedbench
from fedbench.core.errors import RequestError
from fedbench.core.randomness import fold_in, key
from fedbench.models.dense import MLP, Linear
from fedbench.models.parts import tensors_of
from fedbench.scenarios.attack import Attack
from fedbench.scenarios.availability import Availability, bernoulli
from fedbench.scenarios.scenario_stack import ScenarioStack
from fedbench.simulation.personal import PERSONAL, with_personal_part
from fedbench.simulation.selection import Asked, LossSelection
from fedbench.simulation.task import Task

DATA = federation()
N = DATA.train.counts
CANDIDATES, SAMPLING = 27, 2  # random streams


def asked(ids, losses):
    return Asked(np.array(ids), torch.tensor(losses, dtype=torch.float64))


def clocks(stream, round, ids, weights, size, seed=5):
    """The ids of the smallest exponential clocks, ascending."""
    u = (fold_in(key(seed, stream, round), np.array(ids)) + 0.5) / 2.0**63
    order = np.argsort(-np.log(u) / np.array(weights, dtype=float))
    return sorted(np.array(ids)[order[:size]].tolist())


# ---- the two rules


def test_power_of_choice_takes_the_largest_losses_of_candidates_drawn_by_size():
    n = np.array([5, 0, 30, 10, 1, 20])
    able = [0, 2, 3, 4, 5]
    rule = LossSelection("power_of_choice", 2, 4)
    for round in range(20):
        drawn = rule.candidates_of(round, n, 5)
        assert drawn.tolist() == clocks(CANDIDATES, round, able, n[able], 4)
    everybody = LossSelection("power_of_choice", 2, 1.0)
    assert everybody.candidates_of(3, n, 5).tolist() == able
    losses = asked(able, [0.1, 3.0, 0.2, 7.0, 3.0])
    # 3.0 is the loss of two clients, of which 2 has the smaller id
    assert everybody.cohort_of(3, losses, 6, 5).tolist() == [2, 4]
    assert LossSelection("power_of_choice", 1, 1.0).cohort_of(3, losses, 6, 5).tolist() == [4]
    lost = asked([0, 3, 5], [9.0, float("nan"), 8.0])
    assert rule.cohort_of(0, lost, 6, 5).tolist() == [0, 3]


def frequencies(rule, n, losses, rounds=4000):
    """How often each client is the only one of a cohort."""
    seen = np.zeros(len(n))
    for round in range(rounds):
        ids = rule.candidates_of(round, n, 5)
        answers = asked(ids, np.array(losses)[ids].tolist())
        seen[rule.cohort_of(round, answers, len(n), 5)] += 1
    return seen / rounds


def test_as_many_candidates_as_places_is_a_draw_by_size():
    n = np.array([1, 2, 0, 7])
    seen = frequencies(LossSelection("power_of_choice", 1, 1), n, [9.0, 1.0, 5.0, 0.0])
    assert np.abs(seen - n / n.sum()).max() < 0.03


def test_loss_draws_in_proportion_to_the_losses():
    n = np.array([1, 9, 0, 7])
    rule = LossSelection("loss", 1, 1.0)
    losses = [1.0, 2.0, 50.0, 7.0]
    assert np.abs(frequencies(rule, n, losses) - [0.1, 0.2, 0, 0.7]).max() < 0.03
    assert np.abs(frequencies(rule, n, [0.0] * 4) - np.array([1, 1, 0, 1]) / 3).max() < 0.03
    two = LossSelection("loss", 2, 1.0)
    for round in range(20):
        cohort = two.cohort_of(round, asked([0, 1, 3], [1.0, 2.0, 7.0]), 4, 5)
        assert cohort.tolist() == clocks(SAMPLING, round, [0, 1, 3], [1, 2, 7], 2)


def test_candidates_of_loss_are_drawn_uniformly():
    n = np.array([1, 9, 0, 70])
    seen = np.zeros(4)
    for round in range(3000):
        seen[LossSelection("loss", 1, 2).candidates_of(round, n, 5)] += 1
    assert np.abs(seen / 3000 - np.array([2, 2, 0, 2]) / 3).max() < 0.03


# ---- in the loop


def loss_of(task, w, client):
    rows = DATA.train.of_clients(np.array([client]))
    return nn.functional.cross_entropy(task.predict(w, DATA.x[rows]), DATA.y[rows])


def largest(task, models, size):
    losses = [float(loss_of(task, w, k)) for k, w in enumerate(models)]
    return sorted(np.argsort(losses)[::-1][:size].tolist())


@pytest.mark.parametrize("mode", ["loop", "stacked", "compiled"])
def test_the_cohort_has_the_largest_losses_at_the_broadcast_model(mode):
    task = task_for(DATA, Linear)
    rule = LossSelection("power_of_choice", 2, 1.0)
    seen = snapshots(make("fedavg"), DATA, task=task, selection=rule, rounds=6, mode=mode)
    for before, after in pairwise(seen):
        assert after.cohort.tolist() == largest(task, [before.server["w"]] * len(N), 2)
    assert len({tuple(s.cohort) for s in seen[1:]}) > 1


def test_candidates_are_measured_on_their_own_parts():
    with torch.device("meta"):
        net = MLP(DATA.shape, DATA.classes, [5])
    names = tensors_of(net, ["head"], "parts.personal")
    task = Task(net, torch.device("cpu"), torch.float64, personal=names)
    w = task.init(torch.Generator().manual_seed(1))
    length = task.shared.size
    algo = with_personal_part(make("fedavg"), w[length:])
    rule = LossSelection("power_of_choice", 3, 1.0)
    seen = snapshots(algo, DATA, task=task, w=w[:length], selection=rule, rounds=6)
    differs = False
    for before, after in pairwise(seen):
        body = before.server["w"]
        models = [torch.cat([body, head]) for head in before.clients[PERSONAL]]
        assert after.cohort.tolist() == largest(task, models, 3)
        shared = [torch.cat([body, w[length:]])] * len(N)
        differs |= after.cohort.tolist() != largest(task, shared, 3)
    assert differs


COSTS = [
    # vectors down to every asked client, more down to the cohort, up from the cohort
    ("fedavg", 1, 0, 1),
    ("qfedavg", 1, 0, 1),  # its losses are those of the selection, and counted once
    ("scaffold", 1, 1, 2),
    ("fedadam", 1, 0, 1),
]


@pytest.mark.parametrize(("name", "down", "more", "up"), COSTS)
def test_every_asked_client_gets_the_model_once_and_sends_a_number(name, down, more, up):
    rule = LossSelection("loss", 2, 5)
    last = snapshots(make(name), DATA, selection=rule, rounds=3)[-1]
    vector = 8 * len(last.server["w"])
    assert last.bytes_down == 3 * vector * (5 * down + 2 * more)
    assert last.bytes_up == 3 * (2 * up * vector + 5 * 8)
    assert last.server["~asked"] == 5
    assert last.server["~sampled"] == 2


@pytest.mark.parametrize("name", ["fedavg", "qfedavg", "afl", "fedmgda", "adafedadam", "ditto"])
def test_a_method_acts_as_on_the_same_cohorts_drawn_otherwise(name):
    """The losses of the selection are those that the method would have measured."""
    options = {"partial": True} if name == "afl" else {}
    algo = make(name, **options)
    rule = LossSelection("loss", 3, 6)
    seen = snapshots(algo, DATA, selection=rule, rounds=4)
    cohorts = [s.cohort for s in seen[1:]]
    again = snapshots(algo, DATA, sampler=lambda t, n, seed: cohorts[t], rounds=4)
    for one, other in zip(seen, again, strict=True):
        assert torch.allclose(one.server["w"], other.server["w"], rtol=1e-12, atol=1e-14)
        assert one.client_steps == other.client_steps


def test_resuming_is_bit_identical():
    how = {"selection": LossSelection("loss", 3, 6), "rounds": 4}
    whole = snapshots(make("scaffold"), DATA, **how)
    left = whole[2]._replace(clients={k: v.clone() for k, v in whole[2].clients.items()})
    last = snapshots(make("scaffold"), DATA, resume=left, **how)[-1]
    assert last.cohort.tolist() == whole[-1].cohort.tolist()
    assert (last.bytes_up, last.bytes_down) == (whole[-1].bytes_up, whole[-1].bytes_down)
    assert all(torch.equal(last.server[k], v) for k, v in whole[-1].server.items())
    assert all(torch.equal(last.clients[k], v) for k, v in whole[-1].clients.items())


def test_lost_results_were_asked_for_and_counted():
    everybody = population_of(DATA)
    scenario = ScenarioStack(everybody, [bernoulli(p=0.5)])
    rule = LossSelection("loss", 3, 5)
    seen = snapshots(make("fedavg"), DATA, selection=rule, scenario=scenario, rounds=6)
    arrived = [len(s.cohort) for s in seen[1:]]
    assert min(arrived) < 3
    vector = 8 * len(seen[0].server["w"])
    assert seen[-1].bytes_down == 6 * 5 * vector
    assert seen[-1].bytes_up == sum(arrived) * vector + 6 * 5 * 8
    assert seen[-1].server["~sampled"] == 3


def test_candidates_are_reachable():
    even = np.arange(len(N)) % 2 == 0
    layer = Availability(chances=lambda t: even.astype(float))
    scenario = ScenarioStack(population_of(DATA), [layer])
    rule = LossSelection("power_of_choice", 2, 6)
    seen = snapshots(make("fedavg"), DATA, selection=rule, scenario=scenario, rounds=4)
    assert all((s.cohort % 2 == 0).all() for s in seen[1:])
    assert seen[-1].server["~asked"] == even.sum()


def test_attackers_report_scaled_losses():
    everybody = population_of(DATA)
    attack = Attack(population=everybody, clients=2, loss_scale=1e6)
    scenario = ScenarioStack(everybody, [attack])
    rule = LossSelection("power_of_choice", len(attack.who), 1.0)
    seen = snapshots(make("fedavg"), DATA, selection=rule, scenario=scenario, rounds=3)
    assert all(s.cohort.tolist() == attack.who.tolist() for s in seen[1:])


# ---- in a run

KEYS = " ".join(FAST)


def rows_of(path, keys):
    run = fedbench.run(f"{KEYS} {keys} results_dir={path}")
    rows = [json.loads(line) for line in (run.path / "rounds.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]


@pytest.mark.parametrize("sampling", ["power_of_choice", "loss"])
def test_the_record_of_a_run(tmp_path, sampling):
    keys = f"algo=scaffold sampling={sampling} participation=3 sampling_candidates=5"
    rows = rows_of(tmp_path, keys)
    assert [(row["asked"], row["sampled"], row["clients"]) for row in rows[1:]] == [(5, 3, 3)] * 4


@pytest.mark.parametrize(
    ("algo", "statistics"),
    [("fedavg", 2), ("silobn", 0), ("fixbn parts.fix_after=0.5", 1)],
)
def test_statistics_that_are_sent_are_part_of_the_model(tmp_path, algo, statistics):
    """They are sent in as many of two rounds."""
    keys = f"algo={algo} model=mlp model.norm=batch model.hidden=[4] rounds=2 sampling=loss"
    last = rows_of(tmp_path, f"{keys} participation=3 sampling_candidates=5")[-1]
    shared = 60 * 4 + 4 + 2 * 4 + 4 * 10 + 10
    assert last["bytes_down"] == 4 * 5 * (2 * shared + statistics * 8)
    assert last["bytes_up"] == 4 * 3 * (2 * shared + statistics * 8) + 2 * 5 * 8


@pytest.mark.parametrize("sampling", ["power_of_choice", "loss"])
def test_without_a_choice_nothing_is_measured(tmp_path, sampling):
    """If all clients take part, every number is that of uniform sampling."""
    plain = rows_of(tmp_path, "algo=scaffold")
    assert rows_of(tmp_path, f"algo=scaffold sampling={sampling}") == plain
    assert "asked" not in plain[-1]


def test_uniform_cohorts_do_not_depend_on_other_keys(tmp_path):
    """Roles, losses, fine-tuning and normalisation change no cohort: the same clients train."""
    base = f"{' '.join(FAST)} model=mlp participation=3 rounds=4 results_dir={tmp_path}"
    keys = ["", "parts.personal=[head]", "objective=lc", "finetune.epochs=1", "model.norm=batch"]
    steps = [fedbench.run(f"{base} {key}").meta["client_steps"] for key in keys]
    assert len(set(steps)) == 1  # clients have different numbers of steps


def test_uniform_cohorts_depend_on_the_seed_alone():
    cohorts = []
    for name in ("fedavg", "local", "scaffold", "fedper"):
        seen = snapshots(make(name), DATA, participation=3, rounds=5)
        cohorts.append([s.cohort.tolist() for s in seen[1:]])
    assert all(one == cohorts[0] for one in cohorts)


REFUSED = [
    ("algo=fedavg sampling=power_of_choice", "counts large clients twice, by its weights and by"),
    ("sampling=largest", "sampling must be one of uniform, size, power_of_choice, loss"),
    ("sampling_candidates=5", "sampling_candidates must be null with sampling=uniform, got 5"),
    ("sampling=size sampling_candidates=0.5", "must be null with sampling=size, got 0.5"),
    ("sampling=loss participation=5 sampling_candidates=4", "asks 4 clients, fewer than the 5"),
    ("sampling=loss participation=0.5 sampling_candidates=0.3", "fewer than the 4 of"),
    ("sampling=loss participation=2 sampling_candidates=9", "exceeds the number of clients, 8"),
    ("sampling=loss participation=2 algo=afl", "afl needs all clients in every round"),
    ("sampling=loss participation=2 algo=fedamp", "fedamp needs all clients in every round"),
    ("sampling=loss participation=2 algo=drfa", "drfa needs cohorts that are drawn uniformly"),
    ("sampling=loss participation=2 algo=fedcorr rounds=40", "has stages with cohorts of their"),
    (
        "sampling=loss participation=2 algo.weights=uniform privacy=central",
        "privacy does not go with sampling=loss: the losses that select the clients are private",
    ),
    (
        "sampling=loss participation=2 compression=qsgd compression.down.kind=qsgd",
        "does not go with sampling=loss: the clients that are asked for losses would need",
    ),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_what_is_refused(tmp_path, keys, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{KEYS} {keys} results_dir={tmp_path / 'results'}")
    assert not (tmp_path / "results").exists()
