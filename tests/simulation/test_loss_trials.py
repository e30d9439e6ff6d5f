"""Numbers that clients are given before local work, and models that they measure before the
server's step.
"""

import pytest
import torch
from reference_clients import loss_and_grad
from tools import close, federation, make, snapshots
from toy_problems import clients_of

from fedbench.core.algorithm import Algorithm, Averaging, Trials, by_weight, descent
from fedbench.core.errors import RequestError
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Observer

DATA = federation()  # 7 clients, 21 parameters of 8 bytes
WHOLE = Observer(lambda t: True, lambda exchange: None)


def losses_of(w, ids):
    clients = clients_of(DATA)
    return torch.tensor([loss_and_grad(w.numpy(), *clients[k])[0] for k in ids])


def trying(propose, seen, **options):
    """FedAvg that notes what its trials find."""

    def step(server, uploads, cohort):
        seen.append((uploads, cohort.probe))
        return {"w": server["w"] - uploads["delta"]}

    rule = Averaging(step, {"delta": by_weight})
    return Algorithm(update=rule, trials=Trials(propose, **options))


def halves(server, uploads, cohort):
    w = server["w"]
    models = torch.stack([w, w - uploads["delta"] / 2])
    return {"trials": models, "note": cohort.p}


@pytest.mark.parametrize("observers", [(), (WHOLE,)])
@pytest.mark.parametrize("mode", ["loop", "stacked", "compiled"])
def test_the_cohort_measures_what_the_server_proposes(mode, observers):
    """Uploads that are added up are sums for the proposal too, also where an observer has all of
    them held.
    """
    seen = []
    how = {"rounds": 2, "mode": mode, "participation": 4}
    run = snapshots(
        trying(halves, seen),
        DATA,
        observers=observers,
        **how,
    )
    plain = snapshots(make("fedavg"), DATA, **how)
    assert close(
        run[-1].server["w"],
        plain[-1].server["w"],
        1e-12,
    )
    for before, after, (uploads, probe) in zip(run[:-1], run[1:], seen, strict=True):
        w = before.server["w"]
        assert uploads["delta"].shape == uploads["trials"][1].shape == (21,)
        assert len(uploads["note"]) == 4
        assert "trial_id" not in probe
        for j, model in enumerate((w, w - uploads["delta"] / 2)):
            assert close(
                probe["loss_trials"][:, j],
                losses_of(model, after.cohort),
                1e-10,
            )


def test_a_second_cohort_is_drawn_without_regard_to_the_first():
    seen = []
    run = snapshots(
        trying(halves, seen, drawn=True),
        DATA,
        rounds=40,
        participation=2,
    )
    cohorts = [s.cohort.tolist() for s in run[1:]]
    drawn = [probe["trial_id"].tolist() for _, probe in seen]
    assert all(len(set(ids)) == 2 for ids in drawn)
    # one of 21 pairs in the mean
    assert 0 < sum(a == b for a, b in zip(cohorts, drawn, strict=True)) < 15
    assert set(sum(drawn, [])) == set(range(7))
    uploads, probe = seen[0]
    assert close(
        probe["loss_trials"][:, 1],
        losses_of(uploads["trials"][1], drawn[0]),
        1e-10,
    )


@pytest.mark.parametrize(
    ("options", "down"),
    [({}, 2 * 21 * 8), ({"vectors": 1}, (21 + 2) * 8), ({"drawn": True}, 2 * 21 * 8)],
)
def test_traffic_of_trials(options, down):
    """Two models, or one vector and two step sizes, to each of four clients; two float64 losses
    from each.
    """
    run = snapshots(
        trying(halves, [], **options),
        DATA,
        rounds=1,
        participation=4,
    )[-1]
    plain = snapshots(
        make("fedavg"),
        DATA,
        rounds=1,
        participation=4,
    )[-1]
    assert run.bytes_down - plain.bytes_down == 4 * down
    assert run.bytes_up - plain.bytes_up == 4 * 2 * 8


@pytest.mark.parametrize("mode", ["loop", "stacked", "compiled"])
def test_numbers_for_clients_reach_them_and_the_server(mode):
    """A factor of the rate: compiled code, the plain steps and a slower rate agree; the numbers
    count as traffic.
    """
    solver = descent(scale="factor")

    def start(msg, client, info):
        return {**solver["start"](msg, client, info), "factor": info.probe["factor"]}

    def instruct(server, cohort):
        return {"factor": 0.25 * torch.ones_like(cohort.p) * len(cohort.id)}

    algo = Algorithm(
        start=start,
        step=solver["step"],
        instruct=instruct,
    )
    how = {"rounds": 2, "participation": 2}
    run = snapshots(
        algo,
        DATA,
        mode=mode,
        **how,
    )[-1]
    half = LocalWork(lr=0.05, batch_size=10)
    slow = snapshots(
        make("fedavg"),
        DATA,
        work=half,
        **how,
    )[-1]
    assert close(
        run.server["w"],
        slow.server["w"],
        1e-10,
    )
    assert run.bytes_down - slow.bytes_down == 2 * 2 * 8
    assert run.bytes_up == slow.bytes_up


def test_a_model_of_another_type_is_refused():
    def in_float32(server, uploads, cohort):
        return {"trials": server["w"].float().unsqueeze(0)}

    with pytest.raises(RequestError, match="of the type of server"):
        snapshots(trying(in_float32, []), DATA, rounds=1)
