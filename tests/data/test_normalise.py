"""The numbers by which images are normalised, and views of images in training alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from command_line import FAST
from tools import federation, make, snapshots

import fedbench
from fedbench.config.compose import compose_run
from fedbench.core.algorithm import Algorithm
from fedbench.core.errors import RequestError
from fedbench.data.augmentation import Augmentation
from fedbench.runs.build_data import federated
from fedbench.simulation.local_work import BatchLayout, LocalWork

SIZE = (2, 4, 4)  # two channels


@pytest.fixture
def images(tmp_path):
    """Keys of a run on images of bytes, all of whose pixels are 51 in one channel, 255 in another.

    A fifth of the full range, and all of it.
    """
    rng = np.random.default_rng(0)
    x = np.full((40, *SIZE), 51, dtype=np.uint8)
    x[:, 1] = 255
    x[1:] = rng.integers(0, 256, (39, *SIZE))
    file = tmp_path / "images.npz"
    np.savez(file, x=x, y=np.arange(40) % 3, owner=np.arange(40) % 4)
    source = ["data.source.mean=[0.2,0.5]", "data.source.std=[0.1,0.25]"]
    return ["data=npz", f"data.file={file}", *source, "rounds=2", f"results_dir={tmp_path}/runs"]


@pytest.mark.parametrize(
    ("normalise", "first", "second"),
    [
        ("source", 0.0, 2.0),
        ("none", 0.2, 1.0),
        ("[[0.0,1.5],[2.0,0.5]]", 0.1, -1.0),
    ],
)
def test_values_by_hand(images, normalise, first, second):
    data = federated(compose_run([*images, f"data.normalise={normalise}"]))
    x = data.to(torch.device("cpu"), torch.float64).features(torch.tensor([0]))
    expected = torch.tensor([first, second]).double().view(2, 1, 1).expand(SIZE)
    assert torch.allclose(x[0], expected, atol=1e-7)


def test_a_border_is_black_before_and_zero_after_normalisation(images):
    data = federated(compose_run([*images, "data.normalise=[[0.0,1.5],[2.0,0.5]]"]))
    data = data.to(torch.device("cpu"), torch.float64)
    key = torch.tensor([0])  # the upper left corner of the padded image
    rows = torch.tensor([0])
    black = data.features(rows, lambda x: Augmentation(crop=1)(x, key))
    assert black[0, :, 0, 0].tolist() == pytest.approx([0.0, -3.0])
    change = Augmentation(crop=1, crop_mode="mean")
    mean = data.features(rows, lambda x: change(x, key), normalised=True)
    assert mean[0, :, 0, 0].tolist() == [0.0, 0.0]
    inner = slice(1, None)
    assert torch.equal(mean[..., inner, inner], black[..., inner, inner])


def test_only_other_numbers_are_another_setting(images):
    plain = compose_run(images).digest
    assert compose_run([*images, "data.normalise=source"]).digest == plain
    others = {
        compose_run([*images, f"data.normalise={n}"]).digest for n in ("none", "[[0,0],[1,1]]")
    }
    assert len(others | {plain}) == 3


def test_numbers_of_the_source_change_nothing_in_a_run(images):
    """Training and evaluation are those with the source's numbers."""
    rows = []
    for keys in ("data.normalise=source", "data.normalise=[[0.2,0.5],[0.1,0.25]]"):
        run = fedbench.run([*images, keys])
        rows.append({k: v for k, v in run.last_round().items() if "seconds" not in k})
    assert rows[0] == rows[1]
    other = fedbench.run([*images, "data.normalise=none"]).last_round()
    assert other["train_loss"] != rows[0]["train_loss"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("data.normalise=none", r"is for images stored as bytes, got examples of shape \[60\]"),
        ("data.normalise=[[0],[1]]", r"=\[\[0.*\],\[1.*\]\] is for images stored as bytes"),
        ("data.normalise=mean", "data.normalise must be one of source, none"),
        ("data.normalise=[[0.5],[0.0]]", "a list has means and positive deviations"),
        ("data.normalise=[[0.5]]", "a list has means and positive deviations"),
    ],
)
def test_what_is_refused(tmp_path, keys, message):
    with pytest.raises(RequestError, match=message):
        fedbench.run([*FAST, keys, f"results_dir={tmp_path / 'runs'}"])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("numbers", ["[[0.5],[0.5]]", "[[0.5,0.5],[0.5]]"])
def test_a_number_is_needed_for_every_channel(images, numbers):
    with pytest.raises(RequestError, match="needs 2 means and 2 deviations, one for every channel"):
        fedbench.run([*images, f"data.normalise={numbers}"])


# ---- views


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("reflect", [[4, 3, 4], [1, 0, 1], [4, 3, 4]]),
        ("black", [[0, 0, 0], [0, 0, 1], [0, 3, 4]]),
    ],
)
def test_the_upper_left_crop_of_nine_pixels(mode, rows):
    image = torch.arange(9.0).view(1, 1, 3, 3)
    view = Augmentation(crop=1, crop_mode=mode)(image, torch.tensor([0]))
    assert view[0, 0].tolist() == rows


def views(batch_size, ids, crop_share=1.0, round=3, seed=0):
    """The view of every example in two epochs of some clients, by client, epoch and example."""
    data = federation(sizes=(7, 12, 5, 20), features=16, shape=(1, 4, 4))
    data = replace(data, y=torch.arange(len(data.y)))  # an example is known by its label
    augment = Augmentation(crop=1, flip=True, crop_share=crop_share)
    work = LocalWork(0.1, batch_size, (2, 2), augment=augment)
    seen = {}
    for group in ids:
        tau = work.tau(np.array(group), data.train.counts[group], seed, round)
        order = np.argsort(-tau, kind="stable")
        members = np.array(group)[order]
        layout = BatchLayout(members, tau[order], data, work)
        for batch, _ in layout.batches(seed, round):
            for a, client in enumerate(members[: len(batch.x)]):
                half = tau[order][a] // 2
                for x, y, weight in zip(batch.x[a], batch.y[a], batch.weight[a], strict=True):
                    if weight > 0:
                        seen[client, batch.step >= half, int(y)] = x
    return seen


def test_a_view_depends_on_nothing_but_its_own_key():
    first = views(4, [[0, 1, 2, 3]])
    assert len(first) == 2 * (7 + 12 + 5 + 20)
    for other in (views(5, [[0, 1, 2, 3]]), views(4, [[1], [3, 0]]), views(3, [[2, 3], [0, 1]])):
        assert other
        assert all(torch.equal(first[place], view) for place, view in other.items())
    for other in (views(4, [[0, 1, 2, 3]], round=4), views(4, [[0, 1, 2, 3]], seed=1)):
        same = [torch.equal(first[place], view) for place, view in other.items()]
        assert np.mean(same) < 0.3
    epochs = [torch.equal(first[k, False, y], first[k, True, y]) for k, half, y in first if half]
    assert np.mean(epochs) < 0.3


def test_a_share_of_0_crops_nothing():
    data = federation(features=16, shape=(1, 4, 4))
    runs = []
    for augment in (None, Augmentation(crop=2, crop_share=0.0)):
        work = LocalWork(0.1, 10, augment=augment)
        runs.append(snapshots(make("fedavg"), data, work=work, rounds=2)[-1].server["w"])
    assert torch.equal(*runs)


def test_measurements_see_no_augmentation(tmp_path, images):
    """Losses, gradients and accuracies at the broadcast model, and every evaluation."""
    data = federation(features=16, shape=(1, 4, 4))
    probes = []
    for augment in (None, Augmentation(crop=2, flip=True)):

        def update(server, uploads, cohort):
            probes.append(cohort.probe)
            return {**server, "w": server["w"] - cohort.p @ uploads["delta"]}

        needs = frozenset(["loss", "grad", "accuracy", "loss_init"])
        work = LocalWork(0.1, 10, augment=augment)
        snapshots(replace(Algorithm(), needs=needs, update=update), data, work=work, rounds=1)
    plain, augmented = probes
    assert plain.keys() == augmented.keys() == {"loss", "grad", "accuracy", "loss_init"}
    assert all(torch.equal(augmented[name], v) for name, v in plain.items())

    keys = [*images, "eval_train_every=1", "rounds=1"]
    rows = []
    for more in ([], ["local.crop=2", "local.flip=true"]):
        file = fedbench.run([*keys, *more]).path / "rounds.jsonl"
        rows.append(file.read_text().splitlines())
    start, other_start = (row[0].partition('"seconds')[0] for row in rows)
    assert start == other_start
    assert rows[0][1].partition('"seconds')[0] != rows[1][1].partition('"seconds')[0]
