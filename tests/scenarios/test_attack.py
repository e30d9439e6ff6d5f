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
from fedbench.config.targets import Component, call
from fedbench.core.errors import RequestError
from fedbench.core.randomness import Purpose, fold_in, key
from fedbench.core.types import ClientInfo
from fedbench.data.dataset import Rows
from fedbench.scenarios.attack import Attack, supported
from fedbench.scenarios.availability import Availability
from fedbench.scenarios.defence import Defence
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.measurements import Measurements

FULL = LocalWork(0.1, None)
SENT = {"ids": [1, 4]}
OTHERS = [k for k in range(7) if k not in SENT["ids"]]


def attack(n=(5,) * 10, **options):
    """As a configuration makes one."""
    return call(
        Component("fedbench.scenarios.attack.Attack", options),
        "attack",
        population=population_of(n),
    )


def facts(p=None, **more):
    """What the server knows of all clients."""
    ones = torch.ones(7, dtype=torch.float64)
    return ClientInfo(
        torch.arange(7),
        ones,
        ones / 7 if p is None else p,
        ones,
        ones,
        ones,
        torch.arange(7),
        **more,
    )


def forged(message, rows, bad=(1, 4), p=None, **options):
    """What the server sees of the vectors [7, P] of all clients."""
    data = federation()
    layer = scenario_of(data, attack={"ids": list(bad), "message": message, **options}).layers[0]
    algo = layer.wrap(make("fedavg"), round_plan(range(7), round=3))
    uploads, _ = algo.deliver(
        {"w": rows[0]}, {"delta": rows, "a": rows[:, :1].clone()}, {}, facts(p)
    )
    assert torch.equal(uploads["a"], rows[:, :1])  # numbers stay truthful
    others = [k for k in range(7) if k not in bad]
    assert torch.equal(uploads["delta"][others], rows[others])
    return uploads["delta"][list(bad)]


ROWS = torch.randn(7, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_who_attacks():
    n = np.array([3, 0, 1, 1, 1, 0, 2, 2, 2, 5, 5, 5])  # 10 with examples
    able = np.flatnonzero(n)
    order = able[np.argsort(fold_in(key(0, Purpose.ATTACKERS), able))]
    for clients, count in ((0.3, 3), (0.29, 2), (0.49, 4), (4, 4), (0, 0)):
        assert attack(n, clients=clients).who.tolist() == sorted(order[:count])
    assert attack(n, ids=[6, 0]).who.tolist() == [0, 6]
    n[1] = 1  # one more client changes no draw
    assert set(attack(n, clients=4).who) <= {*order[:4], 1}


def test_values_of_the_messages():
    honest = ROWS[OTHERS]
    mean, deviation = honest.mean(0), honest.std(0, correction=0)
    assert torch.equal(forged("sign_flip", ROWS, scale=2.0), -2 * ROWS[[1, 4]])
    once = ROWS.index_copy(0, torch.tensor([1, 4]), forged("sign_flip", ROWS))
    assert torch.equal(forged("sign_flip", once), ROWS[[1, 4]])  # twice: the identity
    assert close(forged("ipm", ROWS), (-0.5 * mean).expand(2, -1), 1e-12)
    assert close(forged("alie", ROWS, zeta=1.5), (mean - 1.5 * deviation).expand(2, -1), 1e-12)
    # σ = 2
    assert close(
        forged("alie", ROWS), (mean - NormalDist().inv_cdf(3 / 5) * deviation).expand(2, -1), 1e-12
    )
    equal = ROWS.clone()
    equal[OTHERS] = ROWS[0]
    assert close(forged("alie", equal), ROWS[:1].expand(2, -1), 1e-12)
    p = torch.tensor([0.1, 0.2, 0.1, 0.1, 0.3, 0.1, 0.1], dtype=torch.float64)
    assert close(forged("scale", ROWS, p=p), 2 * ROWS[[1, 4]], 1e-12)
    assert torch.equal(forged("scale", ROWS, scale=5), 5 * ROWS[[1, 4]])


def test_supporters():
    assert supported(50, 12) == pytest.approx(NormalDist().inv_cdf(24 / 38))
    assert supported(50, 12) == pytest.approx(0.3360, abs=5e-5)
    assert (supported(4, 3), supported(3, 0), supported(2, 1)) == (
        3.0,
        pytest.approx(NormalDist().inv_cdf(1 / 3)),
        0.0,
    )


def test_noise_is_of_the_vector_s_length_and_the_client_s_own():
    rows = (
        torch.randn(7, 20_000, dtype=torch.float64)
        * torch.arange(1, 8, dtype=torch.float64)[:, None]
    )
    sent = forged("gaussian", rows, scale=3.0)
    ratio = torch.linalg.vector_norm(sent, dim=1) / torch.linalg.vector_norm(rows[[1, 4]], dim=1)
    assert ratio.tolist() == pytest.approx([3, 3], rel=0.03)
    assert torch.corrcoef(sent)[0, 1].abs() < 0.05
    alone = forged("gaussian", rows, bad=(4,), scale=3.0)  # whoever else attacks
    assert torch.equal(alone[0], sent[1])
    added = forged("gaussian", rows, scale=3.0, add=True)
    assert close(added, sent + rows[[1, 4]], 1e-12)


@pytest.mark.parametrize("message", ["sign_flip", "gaussian", "alie", "ipm", "scale"])
@pytest.mark.parametrize("ids", [[], [0, 2], [1, 3, 4, 5, 6]])
def test_without_attackers_or_honest_clients_in_a_round_messages_stay(message, ids):
    """Of the clients 1, 3, 4, 5 in all rounds; [0, 2] are not among them and the last are all."""
    data, how = (
        federation(dtype=torch.float32),
        {"rounds": 2, "sampler": lambda t, n, seed: np.array([1, 3, 4, 5])},
    )
    options = {"ids": ids, "message": message, "zeta": 1.0}
    of = final(make("fedavg"), data, scenario=scenario_of(data, attack=options), **how)
    assert torch.equal(of, final(make("fedavg"), data, **how))


@pytest.mark.parametrize("mode", ["stacked", "compiled"])
@pytest.mark.parametrize(
    "algo", ["fedavg", "scaffold", "fedadam", "fafed", "stem", "mimelite", "fedfv", "drfa", "ditto"]
)
def test_no_attack_and_the_mean_are_bit_identical(algo, mode):
    """With attackers that do nothing."""
    data, how = federation(dtype=torch.float32), {"rounds": 3, "mode": mode}
    quiet = scenario_of(data, attack={"clients": 2}, defence={"rule": "mean"})
    a, b = (snapshots(make(algo), data, scenario=s, **how)[-1] for s in (quiet, None))
    assert torch.equal(a.server["w"], b.server["w"])
    assert all(torch.equal(a.clients[k], v) for k, v in b.clients.items())
    assert (a.bytes_up, a.bytes_down, a.client_steps) == (b.bytes_up, b.bytes_down, b.client_steps)
    assert a.server["~attackers"] == 2


def test_the_mean_of_inner_product_manipulation():
    """The aggregate is ((C - f) - f scale)/C μ."""
    data = federation()
    algo = make("fedavg", weights="uniform")
    start = snapshots(algo, data, rounds=0)[0].server["w"]
    alone = final(algo, data, rounds=1, work=FULL, sampler=lambda t, n, seed: np.array(OTHERS))
    for scale in (0.5, 4.0):
        around = scenario_of(data, attack={**SENT, "message": "ipm", "scale": scale})
        of = snapshots(algo, data, rounds=1, work=FULL, scenario=around)
        factor = (5 - 2 * scale) / 7
        assert close(of[-1].server["w"] - start, factor * (alone - start), 1e-9)
        assert of[-1].server["~deviation"].item() == pytest.approx(1 - factor)


def test_model_replacement():
    """Without steps of the honest clients, w becomes the attackers' mean model."""
    data = federation()
    algo, attackers = make("fedavg"), torch.tensor(SENT["ids"])

    def finish(msg, client, local, info):
        uploads, client = algo.finish(msg, client, local, info)
        return {"delta": uploads["delta"] * torch.isin(info.id, attackers)}, client

    still = replace(algo, finish=finish)
    of = final(
        still, data, rounds=1, scenario=scenario_of(data, attack={**SENT, "message": "scale"})
    )
    alone = final(algo, data, rounds=1, sampler=lambda t, n, seed: np.array(SENT["ids"]))
    assert close(of, alone, 1e-9)


def test_the_median_of_clients_with_the_same_data_is_the_run_without_attackers():
    data = federation([10] * 5, seed=2)
    same = torch.from_numpy(np.tile(np.arange(10), 5))
    data = replace(data, train=replace(data.train, index=same))
    algo = make("fedavg", weights="uniform")
    how = {"rounds": 3, "work": FULL}
    robust = scenario_of(
        data, attack={"ids": [0, 3], "message": "sign_flip"}, defence={"rule": "median"}
    )
    seen = snapshots(algo, data, scenario=robust, **how)[-1]
    assert close(seen.server["w"], final(algo, data, **how), 1e-12)
    assert seen.server["~deviation"] < 1e-9


@pytest.mark.parametrize(
    ("defence", "share"),
    [
        ({"rule": "krum"}, 0.0),
        ({"rule": "multi_krum"}, 0.0),
        ({"rule": "bulyan", "f": 1}, 0.0),
        ({"rule": "multi_krum", "m": 7}, 2 / 7),
    ],
)
def test_the_share_of_attackers_among_the_chosen(defence, share):
    data, ids = federation([20] * 7), [1] if defence["rule"] == "bulyan" else [1, 4]
    both = scenario_of(
        data,
        attack={"ids": ids, "message": "gaussian", "scale": 100.0},
        defence={"f": 2, **defence},
    )
    seen = snapshots(make("fedavg", weights="uniform"), data, rounds=1, scenario=both)[-1].server
    assert seen["~chosen_attackers"].item() == share  # not rounded to float32
    assert seen["~attackers"] == len(ids)


@pytest.mark.parametrize(
    "algo", ["term", "qfedavg", "afl", "gifair", "fedmdfg", "drfa", "adafed", "fedfv", "adafedadam"]
)
def test_reported_losses_reach_the_server(algo):
    data, how = federation(), {"rounds": 3}
    options = {
        "drfa": {"snapshot": 1, "snapshot_weights": "uniform"},
        "fedmdfg": {"step": "search"},
    }.get(algo, {})
    plain = final(make(algo, **options), data, **how)
    louder = final(
        make(algo, **options),
        data,
        scenario=scenario_of(data, attack={**SENT, "loss_scale": 3.0}),
        **how,
    )
    assert louder.isfinite().all()
    assert not close(louder, plain, 1e-6)
    all_but_one = {"ids": [*range(6)], "loss_scale": 1.0}
    assert torch.equal(
        final(make(algo, **options), data, scenario=scenario_of(data, attack=all_but_one), **how),
        plain,
    )


def test_louder_losses_by_hand():
    """Losses of every kind, also those that a second cohort measures; nothing else changes."""
    scenario = scenario_of(federation(), attack={**SENT, "loss_scale": 2.0})
    plan = scenario.plan(round_plan(range(7), make("term")))
    loss = torch.arange(7, dtype=torch.float64)
    probe = {"loss": loss, "loss_after": 10 * loss, "grad": ROWS, "accuracy": loss}
    reported = plan.reported(np.arange(7), probe)
    assert reported["loss"].tolist() == [0, 2, 2, 3, 8, 5, 6]
    assert reported["loss_after"].tolist() == [0, 20, 20, 30, 80, 50, 60]
    assert reported["grad"] is ROWS and reported["accuracy"] is loss
    assert loss.tolist() == [*range(7)]
    second = np.array([5, 4, 1])
    trials = plan.reported(second, {"loss_trials": torch.ones(3, 2)})["loss_trials"]
    assert trials.tolist() == [[1, 1], [2, 2], [2, 2]]


def test_every_vector_has_noise_of_its_own():
    layer = scenario_of(federation(), attack={**SENT, "message": "gaussian"}).layers[0]
    algo = layer.wrap(make("scaffold"), round_plan(range(7), round=3))
    sent, _ = algo.deliver({"w": ROWS[0]}, {"delta": ROWS, "c": ROWS}, {}, facts())
    assert torch.equal(sent["c"][1], forged("gaussian", ROWS)[0])  # the first name
    assert torch.corrcoef(torch.stack([sent["c"][1], sent["delta"][1]]))[0, 1].abs() < 0.5


@pytest.mark.parametrize(
    ("kind", "new"),
    [
        ("flip", lambda y, rows: 2 - y),
        ("next", lambda y, rows: (y + 1) % 3),
        ("pair", lambda y, rows: y.where(y != 0, 2)),
        (
            "random",
            lambda y, rows: torch.from_numpy(fold_in(key(0, Purpose.ATTACKERS), rows.numpy()) % 3),
        ),
    ],
)
def test_labels(kind, new):
    data = federation()
    rows = data.train.of_clients(np.array(SENT["ids"]))
    attackers = scenario_of(data, attack={**SENT, "data": kind, "source": 0, "target": 2}).attackers
    changed = attackers.changed(data)
    assert torch.equal(changed.y, data.y.index_copy(0, rows, new(data.y[rows], rows)))
    if kind == "flip":
        assert torch.equal(attackers.changed(changed).y, data.y)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clients": 0.5}, "clients must be < 0.5 or an integer, got 0.5"),
        ({"clients": 1.0}, "clients must be < 0.5 or an integer, got 1.0"),
        ({"clients": -1}, "clients must be >= 0, got -1"),
        ({"clients": 10}, "clients must make fewer than 10 clients attackers for message=none"),
        ({"clients": 50}, "clients must make fewer than 10 clients attackers for message=none"),
        ({"clients": 5, "message": "alie"}, "clients must make fewer than 5 clients attackers for message=alie"),
        ({"ids": [*range(10)]}, "ids must make fewer than 10 clients attackers for message=none"),
        ({"ids": [3, 12]}, "ids must be clients with training examples, got 12; remove it"),
        ({"scale": -1}, "scale must be auto or >= 0, got -1"),
        ({"data": "pair"}, "source and target must be two of 3 classes, got null and null"),
        ({"data": "pair", "source": 1, "target": 1}, "source and target must be two of 3 classes, got 1 and 1"),
        ({"source": 0, "target": 3}, "source and target must be two of 3 classes, got 0 and 3"),
    ],
)  # fmt: skip
def test_refused(options, text):
    with pytest.raises(RequestError, match=text):
        attack(**options)


def test_refused_by_the_data():
    data = federation()
    attackers = scenario_of(data, attack={**SENT, "data": "flip"}).attackers
    tokens = data.y[:, None].expand(-1, 4)
    for changed in ({"classes": 1}, {"y": tokens}):
        with pytest.raises(
            RequestError, match=r"attack.data must be none for data with .*, got flip; set attack"
        ):
            attackers.changed(replace(data, **changed))


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (
            "defence=median",
            "defence.rule=median needs weights that do not depend on the clients; set algo.weights=",
        ),
        (
            "attack=alie attack.clients=3",
            "attack.clients must make fewer than 3 clients attackers for message=alie",
        ),
        (
            "attack=alie algo=fedcada",
            "attack.message=alie does not go with algo=fedcada: second moments could become",
        ),
    ],
)
def test_what_cannot_be_is_explained(fed, typed, text):
    status, _, error = fed("data.clients=6", "rounds=1", *typed.split())
    assert (status, text in error) == (2, True), error


def test_metrics_are_of_the_honest_clients(fed, tmp_path):
    given = "data=synthetic_iid data.clients=9 rounds=2 keep_clients=all data.validation=0.2 improved_clients=true"
    pair = f"{given} attack=pair attack.clients=3 attack.source=1 attack.target=2"
    cases = pair, f"{pair} attack.data=none", given
    path, partner, plain = (run_dir(tmp_path, fed(*typed.split())[1]) for typed in cases)
    row = last_row(path)
    who = json.loads((path / "meta.json").read_text())["attackers"]
    table = pd.read_parquet(path / "clients.parquet").query("round == 2")
    assert len(who) == 3
    assert table["client"].tolist() == [k for k in range(9) if k not in who]
    assert row["accuracy_mean"] == pytest.approx(table["accuracy"].mean())
    assert row["attackers"] == 3
    assert 0 <= row["attackers_accuracy"] <= 1 and 0 <= row["attack_success"] <= 1
    assert (row["improved_clients"] * 6) % 1 == pytest.approx(0, abs=1e-9)
    assert "attack_success" in last_row(partner)
    a, b, c = ((p / "model.safetensors").read_bytes() for p in (path, partner, plain))
    assert a != b == c
    assert json.loads((partner / "meta.json").read_text())["attackers"] == who
    sampled = run_dir(
        tmp_path, fed(*f"{given} attack=flip attack.clients=3 evaluate.clients=5".split())[1]
    )
    assert set(pd.read_parquet(sampled / "clients.parquet")["client"]) < set(range(9)) - set(who)


def test_success_is_the_share_of_source_that_is_taken_for_target():
    data = federation([30] * 4, [40] * 4)
    attackers = scenario_of(data, attack={"ids": [2], "source": 0, "target": 1}).attackers
    task = task_for(data)
    w = torch.randn(task.size, dtype=torch.float64)
    measured, honest = Measurements(task, engine_of(task, "stacked")), np.array([0, 1, 3])
    found = attackers.measured(lambda ids: w, measured, data, honest)
    rows = data.test.of_clients(honest)
    of_source = rows[data.y[rows] == 0]
    taken = task.predict(w, data.features(of_source)).argmax(1) == 1
    assert found["attack_success"] == pytest.approx(taken.double().mean().item())
    shared = replace(data, central=True, test=Rows.shared(rows.numpy(), 4))
    central = attackers.measured(lambda ids: w, measured, shared, honest)
    assert central["attack_success"] == pytest.approx(found["attack_success"])
    nobody = replace(data, test=data.test.where(np.zeros(len(data.y), bool)))
    assert np.isnan([*attackers.measured(lambda ids: w, measured, nobody, honest).values()]).all()
    own = data.test.of_clients(np.array([2]))
    right = task.predict(w, data.features(own)).argmax(1) == data.y[own]
    assert found["attackers_accuracy"] == pytest.approx(right.double().mean().item())


def last_row(path):
    return json.loads((path / "rounds.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize("algo", ["scaffold", "ditto"])
def test_residuals_of_clients_pass_where_messages_of_the_whole_cohort_are_held(fed, tmp_path, algo):
    """Attackers that send their vectors times 1 change nothing."""
    given = f"data.clients=6 participation=4 rounds=3 algo={algo} compression=top_k compression.up.ratio=0.2".split()
    harmless = ["attack=scale", "attack.ids=[0,1]", "attack.scale=1", "attack.data=none"]
    a, b = (run_dir(tmp_path, fed(*given, *more)[1]) for more in ([], harmless))
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
    assert last_row(a)["bytes_up"] == last_row(b)["bytes_up"]


def test_rounds_without_reports():
    data = federation()
    around = scenario_of(data, attack={**SENT, "message": "ipm"}, defence={"rule": "median"})
    away = replace(
        around, layers=[*around.layers, Availability(chances=lambda t: np.full(7, float(t != 1)))]
    )
    seen = snapshots(make("fedavg", weights="uniform"), data, scenario=away, rounds=3)
    assert torch.equal(seen[1].server["w"], seen[2].server["w"])
    assert [s.server["~attackers"].item() for s in seen[1:]] == [2, 0, 2]
    assert [s.server["~deviation"].isnan().item() for s in seen[1:]] == [False, True, False]


@pytest.mark.parametrize(
    "choice", [f"{group}={name}" for group in ("attack", "defence") for name in options(group)]
)
def test_files(choice):
    """Every file makes what its name says, with the defaults of the class for everything else."""
    group, name = choice.split("=")
    section = composed(choice)[0][group]
    if name == "none":
        assert not section
        return
    maker = {"attack": Attack, "defence": partial(Defence, attackers=1)}[group]
    made = maker(population=population_of((5,) * 10), **Component.of(group, section).options)
    assert name in ((made.rule,) if group == "defence" else ("clean", made.data, made.message))
    defaults = {f.name: f.default for f in fields(made)}
    own = {"rule", "data", "message", "source", "target"}
    assert all(getattr(made, k) == defaults[k] for k in section if k not in {"_target_", *own})
