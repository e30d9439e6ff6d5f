"""FedAMP: mixtures of the clients' models, one for each client."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from command_line import FAST
from safetensors.torch import load_file
from tools import federation, make, snapshots

import fedbench
from fedbench.core.errors import RequestError
from fedbench.simulation.local_work import LocalWork

DATA = federation()
DRAWN = LocalWork(lr=0.1, batch_size=4, epochs=(1, 3))
KEYS = " ".join(FAST)


def mixtures(models, **options):
    """The vectors u_k that the server sends to the owners of these models."""
    algo = make("fedamp", **options)
    server = {"w": models[0], "models": models}
    return algo.instruct(server, SimpleNamespace(id=torch.arange(len(models))))["w"]


def test_mixtures_by_hand():
    """Three numbers 0, 2 and 6, α = 1, σ = 4: ξ = e^(-d²/4)/4."""
    near, middle, far = (math.exp(-(d**2) / 4) / 4 for d in (2, 4, 6))
    u = mixtures(torch.tensor([[0.0], [2.0], [6.0]]).double(), alpha=1.0, sigma=4.0)
    expected = [2 * near + 6 * far, 2 - 2 * near + 4 * middle, 6 - 4 * middle - 6 * far]
    assert torch.allclose(u.flatten(), torch.tensor(expected).double(), atol=1e-14)


def test_mixtures_are_means_and_keep_equal_models():
    rng = torch.Generator().manual_seed(0)
    models = torch.randn(5, 30, generator=rng, dtype=torch.float64)
    options = {"alpha": 2.0, "sigma": 9.0}
    moved = mixtures(models + 3.0, **options) - mixtures(models, **options)
    assert torch.allclose(moved, torch.full_like(moved, 3.0), atol=1e-12)  # rows sum to 1
    equal = models[:1].repeat(5, 1)
    assert torch.allclose(mixtures(equal, **options), equal, atol=1e-14)


def test_far_from_0_the_distances_are_still_those_of_the_models():
    rng = torch.Generator().manual_seed(0)
    models = 1e-3 * torch.randn(4, 50, generator=rng, dtype=torch.float64)
    options = {"alpha": 1e-6, "sigma": 1e-5}
    far = mixtures(models + 1e4, **options) - 1e4
    assert torch.allclose(far, mixtures(models, **options), atol=1e-9)
    assert not torch.allclose(far, models, atol=1e-9)


def test_without_a_pull_clients_train_alone():
    last = snapshots(make("fedamp", lam=0.0), DATA, work=DRAWN, rounds=3)[-1]
    for k in range(DATA.num_clients):
        alone = snapshots(
            make("fedavg"),
            DATA,
            work=DRAWN,
            rounds=3,
            sampler=lambda t, n, seed, k=k: np.array([k]),
        )[-1]
        assert torch.allclose(last.clients["personal"][k], alone.server["w"], atol=1e-10)
    mean = last.clients["personal"].mean(0)
    assert torch.allclose(last.server["w"], mean, atol=1e-12)
    assert torch.equal(last.server["models"], last.clients["personal"])


def test_every_client_receives_and_sends_one_model():
    last = snapshots(make("fedamp"), DATA, rounds=3)[-1]
    vectors = 3 * DATA.num_clients * 8 * len(last.server["w"])
    assert last.bytes_down == last.bytes_up == vectors


def test_clients_without_examples_are_no_part_of_the_mean():
    data = federation(sizes=(5, 0, 9))
    first, *_, last = snapshots(make("fedamp"), data, rounds=2)
    own = last.clients["personal"]
    assert torch.equal(own[1], first.server["w"])
    assert torch.allclose(last.server["w"], own[[0, 2]].mean(0), atol=1e-12)


def test_a_run_keeps_every_model(tmp_path):
    run = fedbench.run(f"{KEYS} algo=fedamp results_dir={tmp_path}")
    own = load_file(run.path / "personal.safetensors")
    model = load_file(run.path / "model.safetensors")
    assert own["weight"].shape == (8, 10, 60)
    assert torch.allclose(model["weight"], own["weight"].mean(0), atol=1e-6)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("algo.sigma=10000", "sum to 7 for 8 clients, .* lower algo.alpha or raise algo.sigma"),
        ("participation=0.5", "fedamp needs all clients in every round"),
        ("local.momentum=0.5", "fedamp cannot be combined with local momentum"),
        ("local.weight_decay=0.5", "fedamp cannot be combined with local weight decay"),
        ("local.clip_norm=0.5", "fedamp cannot be combined with local clipping"),
        ("model=mlp parts.personal=[head]", "fedamp has personal models already, so no part"),
        ("availability=bernoulli", "availability does not go with algo=fedamp: all clients must"),
        ("attack=sign_flip", "not go with algo=fedamp: its clients' messages, if there are any"),
        ("defence=median", "not go with algo=fedamp: its clients' messages, if there are any"),
        ("privacy=central", "not go with algo=fedamp: its clients' messages, if there are any"),
        ("compression=qsgd", "not go with algo=fedamp: its clients' messages, if there are any"),
    ],
)
def test_what_is_refused(tmp_path, keys, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run(f"{KEYS} algo=fedamp {keys} results_dir={tmp_path / 'results'}")
    assert not (tmp_path / "results").exists()


def test_weights_that_sum_to_one_are_allowed():
    """The other clients' models then replace one's own."""
    make("fedamp", alpha=1.0, sigma=7.0, clients=8)
    with pytest.raises(RequestError, match=r"sum to 1\.001"):
        make("fedamp", alpha=1.001, sigma=7.0, clients=8)
