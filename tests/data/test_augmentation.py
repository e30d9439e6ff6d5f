"""Crops and mirror images by hand, and in the batches of a round."""

from dataclasses import replace
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tools import federation, final, task_for

from fedbench.algorithms.fedavg import fedavg
from fedbench.core.optim import SGD
from fedbench.data.augmentation import Augmentation
from fedbench.models.cnn import ConvNet
from fedbench.simulation.local_work import BatchLayout, LocalWork

IMAGE = torch.arange(1.0, 13.0).view(1, 1, 3, 4)


def key(down, across, mirrored, crop):
    span = 2 * crop + 1
    return torch.tensor([down + span * across + span * span * mirrored])


def test_every_crop_by_hand():
    """An image of 3 x 4 inside two black pixels, cut out ``down`` and ``across``, mirrored or
    not."""
    change = Augmentation(crop=2, flip=True)
    padded = torch.zeros(7, 8)
    padded[2:5, 2:6] = IMAGE[0, 0]
    for down, across in product(range(5), range(5)):
        crop = padded[down : down + 3, across : across + 4]
        assert torch.equal(change(IMAGE, key(down, across, 0, 2))[0, 0], crop)
        assert torch.equal(change(IMAGE, key(down, across, 1, 2))[0, 0], crop.flip(1))


def test_the_border_reflects_the_image_without_its_edge():
    change = Augmentation(crop=2, crop_mode="reflect")
    padded = F.pad(IMAGE, (2, 2, 2, 2), mode="reflect")[0, 0]
    for down, across in product(range(5), range(5)):
        crop = padded[down : down + 3, across : across + 4]
        assert torch.equal(change(IMAGE, key(down, across, 0, 2))[0, 0], crop)
        stored = change(IMAGE.byte(), key(down, across, 0, 2))
        assert torch.equal(stored[0, 0], crop.byte())


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_share_of_the_images_is_cropped(share):
    """The others are whole; both kinds are mirrored."""
    change = Augmentation(crop=1, flip=True, crop_share=share)
    keys = torch.arange(2 * 9 * 2**10) * 2**10 + 1  # all mirrored or not, from small to large draws
    seen = change(IMAGE.expand(len(keys), -1, -1, -1), keys)
    always = Augmentation(crop=1, flip=True)(IMAGE.expand(len(keys), -1, -1, -1), keys)
    cropped = keys // 18 % 2**20 < share * 2**20
    assert torch.equal(seen[cropped], always[cropped])
    mirrored = keys // 9 % 2 == 1
    whole = torch.where(mirrored[:, None, None, None], IMAGE.flip(3), IMAGE)
    assert torch.equal(seen[~cropped], whole[~cropped])
    assert abs(cropped.double().mean() - share) < 0.01


def test_without_flip_and_without_crop():
    assert torch.equal(Augmentation(crop=2)(IMAGE, key(2, 2, 1, 2)), IMAGE)
    assert torch.equal(Augmentation(flip=True)(IMAGE, torch.tensor([1])), IMAGE.flip(3))
    pixels = IMAGE.to(torch.uint8).expand(2, 3, 3, 3, 4)
    unchanged = torch.zeros(2, 3, dtype=torch.int64)
    assert torch.equal(Augmentation(flip=True)(pixels, unchanged), pixels)


def images(x):
    return {tuple(image.flatten().tolist()) for image in x}


def test_draws_of_a_round_cover_all_and_change_with_epoch_and_round():
    data = federation(
        sizes=(64,),
        features=12,
        shape=(1, 3, 4),
    )
    work = LocalWork(
        0.1,
        64,
        (2, 2),
        augment=Augmentation(crop=1, flip=True),
    )
    plan = BatchLayout(
        np.arange(1),
        np.array([2]),
        data,
        work,
    )
    original = images(data.x[data.train.index])
    seen = []
    for round_ in range(2):
        for batch, _ in plan.batches(0, round_):
            views = images(batch.x[0])
            assert len(views & original) < 16  # one in eighteen: in the middle and not mirrored
            seen.append(views)
    assert len(seen) == 4
    for one, other in combinations(seen, 2):
        assert len(one & other) < 16


def test_engine_modes_see_the_same_images():
    data = federation(
        sizes=(7, 25, 12),
        features=64,
        shape=(1, 8, 8),
        classes=3,
    )
    task = task_for(
        data,
        ConvNet,
        channels=[3],
        kernel=3,
        hidden=4,
    )
    work = LocalWork(
        0.1,
        8,
        (1, 2),
        augment=Augmentation(crop=2, flip=True),
    )

    def trained(**options):
        return final(
            fedavg(SGD),
            data,
            task=task,
            work=work,
            **options,
        )

    one = trained(mode="loop")
    for other in (
        trained(mode="loop", workers=2),
        trained(mode="stacked", cohort_size=2),
        trained(mode="stacked", cohort_size=9),
    ):
        assert torch.allclose(other, one, rtol=1e-9, atol=1e-12)


def test_the_border_is_black_or_the_mean():
    """A black pixel of an image of bytes is (0 - mean) / std, the mean is 0."""
    data = federation(
        sizes=(8,),
        features=4,
        shape=(1, 2, 2),
    )
    white = replace(
        data,
        x=torch.full(data.x.shape, 255, dtype=torch.uint8),
        mean=torch.tensor([0.5], dtype=torch.float64),
        std=torch.tensor([0.25], dtype=torch.float64),
    )
    # its lower right is the image
    corner = partial(Augmentation(crop=1), key=key(0, 0, 0, 1))
    seen = white.features(torch.tensor([0]), corner)
    assert seen.flatten().tolist() == [-2, -2, -2, 2]
    corner = partial(Augmentation(crop=1, crop_mode="mean"), key=key(0, 0, 0, 1))
    seen = white.features(torch.tensor([0]), corner, normalised=True)
    assert seen.flatten().tolist() == [0, 0, 0, 2]
