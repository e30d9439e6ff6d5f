"""Attackers: who they are, what they change and send, and what a run reports of them."""

import json
from dataclasses import fields, replace
from functools import partial
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import run_dir
from snapshot_checks import costs, method_states, model_bytes, random_rows, round_rows
from tools import (
    close,
    composed,
    engine_of,
    federation,
    final,
    make,
    population_of,
    round_plan,
    scenario_of,
    snapshots,
    task_for,
)

from fedbench.config.overrides import options
from fedbench.config.targets import Component
from fedbench.core.errors import RequestError
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import ClientInfo
from fedbench.data.dataset import Rows
from fedbench.scenarios.attack import Attack, supported
from fedbench.scenarios.availability import Availability
from fedbench.scenarios.defence import Defence
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements

DATA = federation()
FULL = LocalWork(0.1, None)
UNIFORM = make("fedavg", weights="uniform")
BAD = [1, 4]
HONEST = [0, 2, 3, 5, 6]
ROWS = random_rows(7, 50)


def attack(bad=BAD, over=DATA, **options):
    """A scenario in which these clients attack."""
    return scenario_of(
        over,
        attack={"ids": bad, **options},
    )


def only(*ids):
    """A sampler that draws these clients in every round."""
    return lambda round, n, seed: np.array(ids)


def delivered(bad, message, uploads, p=None, method="fedavg", **options):
    """What the server sees of the uploads of all seven clients."""
    ids = torch.arange(7)
    ones = torch.ones(7, dtype=torch.float64)
    p = ones / 7 if p is None else p
    cohort = ClientInfo(
        ids,
        ones,
        p,
        ones,
        ones,
        ones,
        ids,
    )
    layer = attack(bad, message=message, **options).layers[0]
    algo = layer.wrap(make(method), round_plan(range(7), round=3))
    server = {"w": uploads["delta"][0]}
    return algo.deliver(server, uploads, {}, cohort)[0]


def forged(message, rows, bad=BAD, **more):
    """What the attackers send; numbers and the vectors of the others stay as they are."""
    numbers = rows[:, :1].clone()
    uploads = delivered(
        bad,
        message,
        {"delta": rows, "a": numbers},
        **more,
    )
    others = np.setdiff1d(range(7), bad)
    assert torch.equal(uploads["a"], numbers)
    assert torch.equal(uploads["delta"][others], rows[others])
    return uploads["delta"][bad]


def test_who_attacks():
    n = [3, 0, 1, 1, 1, 0, 2, 2, 2, 5, 5, 5]
    able = np.flatnonzero(n)
    order = able[np.argsort(fold_in(key(0, Purpose.ATTACKERS), able))]

    def who(n, **options):
        return Attack(population=population_of(n), **options).who.tolist()

    counts = {0.3: 3, 0.29: 2, 4: 4, 0: 0}
    for clients, count in counts.items():
        assert who(n, clients=clients) == sorted(order[:count])
    assert who(n, ids=[6, 0]) == [0, 6]
    n[1] = 1  # one more client changes no draw
    assert set(who(n, clients=4)) <= {*order[:4], 1}


def test_messages_of_one_vector_each():
    own = ROWS[BAD]
    assert torch.equal(forged("sign_flip", ROWS, scale=2.0), -2 * own)
    assert torch.equal(forged("scale", ROWS, scale=5), 5 * own)
    p = torch.tensor(
        [0.1, 0.2, 0.1, 0.1, 0.3, 0.1, 0.1],
        dtype=torch.float64,
    )
    assert close(
        forged("scale", ROWS, p=p),
        own / (0.2 + 0.3),
        1e-12,
    )


def test_messages_from_the_honest_vectors():
    mean = ROWS[HONEST].mean(0)
    deviation = ROWS[HONEST].std(0, correction=0)
    assert close(
        forged("ipm", ROWS),
        (-0.5 * mean).expand(2, -1),
        1e-12,
    )
    assert close(
        forged("alie", ROWS, zeta=1.5),
        (mean - 1.5 * deviation).expand(2, -1),
        1e-12,
    )
    zeta = NormalDist().inv_cdf(3 / 5)  # two supporters of five
    assert close(
        forged("alie", ROWS),
        (mean - zeta * deviation).expand(2, -1),
        1e-12,
    )
    equal = ROWS.clone()
    equal[HONEST] = ROWS[0]
    assert close(
        forged("alie", equal),
        ROWS[:1].expand(2, -1),
        1e-12,
    )


def test_supporters():
    assert supported(50, 12) == pytest.approx(0.3360, abs=5e-5)
    assert supported(4, 3) == 3
    assert supported(2, 1) == 0


def test_noise_is_of_the_vector_s_length_and_the_client_s_own():
    rows = random_rows(7, 20_000) * torch.arange(1, 8)[:, None]
    own = rows[BAD]
    sent = forged("gaussian", rows, scale=3.0)
    ratio = sent.norm(dim=1) / own.norm(dim=1)
    assert ratio.tolist() == pytest.approx([3, 3], rel=0.03)
    assert torch.corrcoef(sent)[0, 1].abs() < 0.05
    alone = forged(
        "gaussian",
        rows,
        bad=[4],
        scale=3.0,
    )  # with other attackers
    assert torch.equal(alone[0], sent[1])
    assert close(
        forged("gaussian", rows, scale=3.0, add=True),
        sent + own,
        1e-12,
    )


def test_every_vector_has_noise_of_its_own():
    uploads = {"delta": ROWS, "c": ROWS}
    sent = delivered(BAD, "gaussian", uploads, method="scaffold")
    pair = torch.stack([sent["c"][1], sent["delta"][1]])
    assert torch.equal(pair[0], forged("gaussian", ROWS)[0])  # the first name
    assert torch.corrcoef(pair)[0, 1].abs() < 0.5


@pytest.mark.parametrize("message", ["sign_flip", "gaussian", "alie", "ipm", "scale"])
@pytest.mark.parametrize("ids", [[], [0, 2], [1, 3, 4, 5, 6]])
def test_without_attackers_or_honest_clients_in_a_round_messages_stay(message, ids):
    """Of the clients 1, 3, 4, 5 in all rounds: none or all are attackers."""
    how = {"rounds": 2, "sampler": only(1, 3, 4, 5)}
    around = attack(ids, message=message, zeta=1.0)
    plain = final(make("fedavg"), DATA, **how)
    assert torch.equal(
        final(
            make("fedavg"),
            DATA,
            scenario=around,
            **how,
        ),
        plain,
    )


@pytest.mark.parametrize("mode", ["stacked", "compiled"])
@pytest.mark.parametrize("algo", ["scaffold", "fedadam", "fafed", "mimelite", "drfa", "ditto"])
def test_attackers_that_do_nothing_and_the_mean_change_nothing(algo, mode):
    data = federation(dtype=torch.float32)
    quiet = scenario_of(
        data,
        attack={"clients": 2},
        defence={"rule": "mean"},
    )
    ours = snapshots(
        make(algo),
        data,
        mode=mode,
        scenario=quiet,
    )[-1]
    plain = snapshots(make(algo), data, mode=mode)[-1]
    assert method_states(ours) == method_states(plain)
    assert costs(ours) == costs(plain)
    assert ours.server["~attackers"] == 2


@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_the_mean_under_inner_product_manipulation(scale):
    """It is ((C - f) - f scale)/C μ."""
    around = attack(message="ipm", scale=scale)
    start, attacked = snapshots(
        UNIFORM,
        DATA,
        rounds=1,
        work=FULL,
        scenario=around,
    )
    honest = final(
        UNIFORM,
        DATA,
        rounds=1,
        work=FULL,
        sampler=only(*HONEST),
    )
    factor = (5 - 2 * scale) / 7
    w = start.server["w"]
    assert close(
        attacked.server["w"] - w,
        factor * (honest - w),
        1e-9,
    )
    assert attacked.server["~deviation"].item() == pytest.approx(1 - factor)


@pytest.mark.parametrize(
    ("bad", "defence", "share"),
    [
        (BAD, {"rule": "krum"}, 0.0),
        (BAD, {"rule": "multi_krum"}, 0.0),
        (BAD, {"rule": "multi_krum", "m": 7}, 2 / 7),
        ([1], {"rule": "bulyan", "f": 1}, 0.0),
    ],
)
def test_the_share_of_attackers_among_the_chosen(bad, defence, share):
    data = federation([20] * 7)
    noise = {"ids": bad, "message": "gaussian", "scale": 100.0}
    both = scenario_of(
        data,
        attack=noise,
        defence={"f": 2, **defence},
    )
    server = snapshots(UNIFORM, data, rounds=1, scenario=both)[-1].server
    assert server["~chosen_attackers"].item() == share  # not rounded to float32
    assert server["~attackers"] == len(bad)


LOSSES = {
    "term": {},
    "qfedavg": {},
    "afl": {},
    "gifair": {},
    "adafed": {},
    "fedfv": {},
    "adafedadam": {},
    "drfa": {"snapshot": 1, "snapshot_weights": "uniform"},
    "fedmdfg": {"step": "search"},
}


@pytest.mark.parametrize("name", LOSSES)
def test_reported_losses_reach_the_server(name):
    algo = make(name, **LOSSES[name])
    plain = final(algo, DATA)
    louder = final(
        algo,
        DATA,
        scenario=attack(loss_scale=3.0),
    )
    assert louder.isfinite().all()
    assert not close(louder, plain, 1e-6)
    truthful = attack([*range(6)], loss_scale=1.0)
    assert torch.equal(final(algo, DATA, scenario=truthful), plain)


def test_louder_losses_by_hand():
    """Losses of every kind, also those that a second cohort measures; nothing else changes."""
    plan = attack(loss_scale=2.0).plan(round_plan(range(7), make("term")))
    loss = torch.arange(7, dtype=torch.float64)
    probe = {"loss": loss, "loss_after": 10 * loss, "grad": ROWS}
    reported = plan.reported(np.arange(7), probe)
    assert reported["loss"].tolist() == [0, 2, 2, 3, 8, 5, 6]
    assert reported["loss_after"].tolist() == [0, 20, 20, 30, 80, 50, 60]
    assert reported["grad"] is ROWS
    trials = {"loss_trials": torch.ones(3, 2)}
    second = plan.reported(np.array([5, 4, 1]), trials)
    assert second["loss_trials"].tolist() == [[1, 1], [2, 2], [2, 2]]


def drawn_labels(y, rows):
    hashes = fold_in(key(0, Purpose.ATTACKERS), rows.numpy())
    return torch.from_numpy(hashes % 3)


LABELS = {
    "flip": lambda y, rows: 2 - y,
    "next": lambda y, rows: (y + 1) % 3,
    "pair": lambda y, rows: y.where(y != 0, 2),
    "random": drawn_labels,
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels(kind):
    rows = DATA.train.of_clients(np.array(BAD))
    changed = attack(data=kind, source=0, target=2).attackers.changed(DATA)
    expected = LABELS[kind](DATA.y[rows], rows)
    assert torch.equal(changed.y, DATA.y.index_copy(0, rows, expected))


@pytest.mark.parametrize(
    "fields",
    [
        {"classes": 1},
        {"y": DATA.y[:, None].expand(-1, 4)},
    ],
)
def test_labels_that_cannot_be_changed_are_refused(fields):
    attackers = attack(data="flip").attackers
    message = "attack.data must be none for data with .*, got flip; set attack"
    with pytest.raises(RequestError, match=message):
        attackers.changed(replace(DATA, **fields))


METRICS = "data=synthetic_iid data.clients=9 rounds=2 keep_clients=all data.validation=0.2"
PAIR = "improved_clients=true attack=pair attack.clients=3 attack.source=1 attack.target=2"


def test_metrics_are_of_the_honest_clients(fed, tmp_path):
    def run(typed):
        return run_dir(tmp_path, fed(*METRICS.split(), *typed.split())[1])

    path = run(PAIR)
    attackers = json.loads((path / "meta.json").read_text())["attackers"]
    honest = [k for k in range(9) if k not in attackers]
    row = round_rows(path)[-1]
    assert len(attackers) == row["attackers"] == 3
    table = pd.read_parquet(path / "clients.parquet").query("round == 2")
    assert table["client"].tolist() == honest
    assert row["accuracy_mean"] == pytest.approx(table["accuracy"].mean())
    assert (row["improved_clients"] * 6) % 1 == pytest.approx(0, abs=1e-9)

    partner = run(f"{PAIR} attack.data=none")
    assert "attack_success" in round_rows(partner)[-1]
    assert json.loads((partner / "meta.json").read_text())["attackers"] == attackers
    plain = run("improved_clients=true")
    assert model_bytes(path) != model_bytes(partner)
    assert model_bytes(partner) == model_bytes(plain)

    sampled = run("attack=flip attack.clients=3 evaluate.clients=5")
    evaluated = pd.read_parquet(sampled / "clients.parquet")["client"]
    assert set(evaluated) < set(honest)


def test_success_is_the_share_of_source_that_is_taken_for_target():
    data = federation([30] * 4, [40] * 4)
    attackers = attack(
        [2],
        data,
        source=0,
        target=1,
    ).attackers
    task = task_for(data)
    w = random_rows(1, task.size)[0]
    honest = np.array([0, 1, 3])

    def measured(data):
        measurements = Measurements(task, engine_of(task, "stacked"))
        return attackers.measured(
            lambda ids: w,
            measurements,
            data,
            honest,
        )

    def predictions(rows):
        return task.predict(w, data.features(rows)).argmax(1)

    rows = data.test.of_clients(honest)
    of_source = rows[data.y[rows] == 0]
    success = predictions(of_source).eq(1).double().mean().item()
    own = data.test.of_clients(np.array([2]))
    accuracy = predictions(own).eq(data.y[own]).double().mean().item()
    expected = {"attackers_accuracy": accuracy, "attack_success": success}
    assert measured(data) == pytest.approx(expected)

    central = replace(
        data,
        central=True,
        test=Rows.shared(rows.numpy(), 4),
    )
    assert measured(central)["attack_success"] == pytest.approx(success)
    nobody = data.test.where(np.zeros(len(data.y), bool))
    assert np.isnan([*measured(replace(data, test=nobody)).values()]).all()


def test_rounds_without_reports():
    around = attack(message="ipm")
    away = Availability(chances=lambda round: np.full(7, float(round != 1)))
    around = replace(around, layers=[*around.layers, away])
    servers = [s.server for s in snapshots(UNIFORM, DATA, scenario=around)]
    assert torch.equal(servers[1]["w"], servers[2]["w"])
    assert [s["~attackers"].item() for s in servers[1:]] == [2, 0, 2]
    assert [s["~deviation"].isnan().item() for s in servers[1:]] == [False, True, False]


MAKERS = {"attack": Attack, "defence": partial(Defence, attackers=1)}
FILES = [(group, name) for group in MAKERS for name in options(group) if name != "none"]


@pytest.mark.parametrize(("group", "name"), FILES)
def test_files_set_the_kind_and_keep_the_defaults(group, name):
    section = composed(f"{group}={name}")[0][group]
    given = Component.of(group, section).options
    made = MAKERS[group](
        population=population_of([5] * 10),
        **given,
    )
    kinds = [made.rule] if group == "defence" else ["clean", made.data, made.message]
    assert name in kinds
    for field in fields(made):
        if field.name in given.keys() - {"rule", "data", "message", "source", "target"}:
            assert getattr(made, field.name) == field.default
