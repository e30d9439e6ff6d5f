"""FedAvg, and the settings in which other methods are FedAvg, in float64."""

import pytest
import torch
from tools import close, federation, final, make, task_for
from toy_problems import BATCHES, DRAWN, UNIFORM, constant_gradients, step_on_linear_losses

from fedbench.core.optim import sgd
from fedbench.simulation.local_work import LocalWork


# 1: these are FedAvg
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedprox", {"mu": 0.0}),
        ("fedavgm", {"beta": 0.0}),
        ("fedavgm", {"beta": 0.0, "nesterov": True}),
    ],
)
def test_an_averaging_method_reduces_to_fedavg(name, options):
    data = federation()
    for solver in (sgd(), sgd(momentum=0.9)):
        plain = final(make("fedavg", solver), data, rounds=5)
        assert close(final(make(name, solver, **options), data, rounds=5), plain, 1e-10)


def test_fedavg_with_one_full_batch_step_is_gradient_descent():
    data = federation()
    task = task_for(data)
    ours = final(make("fedavg"), data, work=LocalWork(0.3, None), rounds=7)
    w = task.init(torch.Generator().manual_seed(0)).requires_grad_()
    rows = data.train.index
    for _ in range(7):  # Σ p_k F_k is the mean over all examples
        loss = torch.nn.functional.cross_entropy(task.predict(w, data.x[rows]), data.y[rows])
        w = (w - 0.3 * torch.autograd.grad(loss, w)[0]).detach().requires_grad_()
    assert close(ours, w.detach(), 1e-12)


def test_fedavgm_stationary_step_is_ten_times_fedavgs():
    """v <- β v + d without a factor 1-β: under a constant d the step grows to d / (1 - β)."""
    data, _ = constant_gradients((10, 20), 3)
    work = LocalWork(lr=0.1, batch_size=10)
    servers = step_on_linear_losses(make("fedavgm"), data, 3, work, rounds=200)
    plain = step_on_linear_losses(make("fedavg"), data, 3, work)[-1]["w"]
    assert torch.allclose(servers[-1]["w"] - servers[-2]["w"], 10 * plain, rtol=1e-8, atol=0)


@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("term", {"t": 0.0, "weights": "size"}, "size"),
        ("term", {"t": 0.0}, "uniform"),
        ("fedmgda", {"eps": 0.0, "normalize": False}, "size"),
        ("fedmgda", {"eps": 0.0, "normalize": False, "prior": "uniform"}, "uniform"),
        ("ditto", {"lam": 3.0}, "size"),
        ("afl", {"lr_lambda": 0.0}, "uniform"),
        ("fedcorr", {"iterations": 0, "mixup": False}, "size"),
    ],
)
def test_a_method_with_states_reduces_to_fedavg(name, options, weights):
    data = federation()
    plain = final(make("fedavg", sgd(momentum=0.5), weights=weights), data, rounds=5)
    assert close(final(make(name, sgd(momentum=0.5), **options), data, rounds=5), plain, 1e-10)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("fedfv", {"alpha": 1.0, "tau": 0}, "uniform"),
        ("fedfv", {"alpha": 1.0, "tau": 0, "history": "paper"}, "uniform"),
        ("gifair", {"share": 0.0}, "size"),
        ("gifair", {"share": 0.0, "form": "local"}, "size"),
        ("gifair", {"share": 0.0, "rank_at": "last", **UNIFORM}, "uniform"),
        ("drfa", {"gamma": 0.0}, "uniform"),
        ("drfa", {"gamma": 0.0, "snapshot": "random"}, "uniform"),
        ("drfa", {"gamma": 0.0, "snapshot_weights": "uniform"}, "uniform"),
        ("fedheal", {"threshold": -1.0, "beta": 0.0}, "uniform"),
    ],
)
def test_a_fair_method_reduces_to_fedavg(name, options, weights, participation):
    data, how = federation(), {"rounds": 5, "work": BATCHES, "participation": participation}
    plain = final(make("fedavg", sgd(momentum=0.5), weights=weights), data, **how)
    assert close(final(make(name, sgd(momentum=0.5), **options), data, **how), plain, 1e-10)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedfv", {}),
        ("fedfv", {"tau": 2}),
        ("gifair", {"share": 0.9}),
        ("gifair", {"share": 0.9, "form": "local"}),
        ("drfa", {}),
        ("drfa", {"snapshot": 1}),
        ("fedmdfg", {}),
        ("fedheal", {"threshold": -1.0}),
    ],
)
def test_one_client_of_a_fair_method_is_fedavg(name, options):
    data = federation(sizes=(23,))
    plain = final(make("fedavg"), data, rounds=4, work=BATCHES)
    assert close(final(make(name, **options), data, rounds=4, work=BATCHES), plain, 1e-10)


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("name", "options", "weights"),
    [
        ("fedexp", {"eps": 1e20, "average": False}, "size"),
        ("fedcm", {"alpha": 1.0}, "uniform"),
        ("fedcm", {"alpha": 1.0, "weights": "size"}, "size"),
        ("fedsam", {"rho": 0.0}, "uniform"),
        ("mofedsam", {"rho": 0.0, "alpha": 1.0}, "uniform"),
        ("mimelite", {"beta1": 0.0}, "uniform"),
        ("pfedme", {"inner": 1, "lam": 4.0, "personal_lr": 0.25, "start": "reset"}, "size"),
        ("apfl", {"alpha": 0.7}, "size"),
        ("apfl", {"alpha": 0.2, "adaptive": True, **UNIFORM}, "uniform"),
    ],
)
def test_a_method_for_heterogeneous_clients_reduces_to_fedavg(
    name, options, weights, participation
):
    data, how = federation(), {"rounds": 5, "work": DRAWN, "participation": participation}
    plain = final(make("fedavg", weights=weights), data, **how)
    assert close(final(make(name, **options), data, **how), plain, 1e-10)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedexp", {"average": False}),
        ("fedsam", {"rho": 0.0}),
        ("apfl", {}),
        ("fedcm", {"alpha": 1.0}),
    ],
)
def test_one_client_of_a_method_for_heterogeneous_clients_is_fedavg(name, options):
    data = federation(sizes=(23,))
    plain = final(make("fedavg"), data, rounds=4, work=BATCHES)
    assert close(final(make(name, **options), data, rounds=4, work=BATCHES), plain, 1e-10)
