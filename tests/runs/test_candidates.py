"""The forms that fit a model, its examples and what the user has pinned."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tools import federation, task_for

from fedbench.config.schema import EngineConfig
from fedbench.core.errors import RequestError
from fedbench.models.cnn import ConvNet
from fedbench.models.dense import MLP
from fedbench.models.lstm import LSTM
from fedbench.runs.build_engine import make_engine
from fedbench.runs.candidates import candidates, on_more_streams
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.forms import Form

AUTO = EngineConfig("auto", None, None, "float32", "auto", profile=False)
IMAGES = federation((3, 4), features=72, shape=(2, 6, 6))
NUMBERS = federation((3, 4))
TEXTS = replace(NUMBERS, x=(NUMBERS.x * 3).long() % 7, tokens=7)
DENSE = partial(MLP, hidden=(4,))
CNN = partial(ConvNet, channels=(2,), kernel=3, hidden=4)
TEXT = partial(LSTM, tokens=7, vectors=None, embedding=3, hidden=4, layers=1)


def found(data, model, **pinned):
    config = replace(AUTO, **pinned)
    return [str(form) for form in candidates(task_for(data, model), data, config)]


def test_dense_models():
    assert found(NUMBERS, partial(MLP, hidden=(4,))) == ["loop", "loop, graphs", "stacked", "stacked, graphs"]


def test_lstms_are_tried_per_client_and_stacked():
    assert found(TEXTS, TEXT) == ["loop", "loop, graphs", "stacked", "stacked, graphs"]


def test_convolutions():
    """Both layouts where images of one client are convolved, and convolutions as matrix products."""
    assert found(IMAGES, CNN) == [
        "loop, channels first", "loop, channels last", "loop, graphs, channels first", "loop, graphs, channels last",
        "stacked", "stacked, graphs", "unfold", "unfold, graphs",
    ]  # fmt: skip


def test_images_without_convolutions_have_one_layout():
    assert found(IMAGES, partial(MLP, hidden=(4,))) == ["loop", "loop, graphs", "stacked", "stacked, graphs"]


@pytest.mark.parametrize(
    ("pinned", "forms"),
    [
        ({"mode": "unfold"}, ["unfold", "unfold, graphs"]),
        ({"mode": "loop", "graphs": True}, ["loop, graphs, channels first", "loop, graphs, channels last"]),
        ({"mode": "loop", "channels_last": True}, ["loop, channels last", "loop, graphs, channels last"]),
        ({"channels_last": True}, ["loop, channels last", "loop, graphs, channels last"]),
        ({"mode": "loop", "graphs": False, "channels_last": False, "workers": 3}, ["loop, channels first, 3 streams"]),
        ({"mode": "stacked", "graphs": False, "workers": 2}, ["stacked, 2 streams"]),
    ],
)
def test_what_is_pinned_filters(pinned, forms):
    assert found(IMAGES, CNN, **pinned) == forms


def test_streams_are_tried_for_one_client_at_a_time():
    loop = Form("loop", graphs=True, channels_last=True)
    assert [f.workers for f in on_more_streams(loop, AUTO)] == [2, 4]
    assert all(replace(f, workers=1) == loop for f in on_more_streams(loop, AUTO))
    assert on_more_streams(loop, replace(AUTO, workers=1)) == []
    assert on_more_streams(Form("stacked"), AUTO) == []


@pytest.mark.parametrize(
    ("pinned", "data", "model", "message"),
    [
        (
            {"graphs": True},
            IMAGES,
            DENSE,
            "engine.graphs=true needs a CUDA device, and this run is on cpu",
        ),
        (
            {"channels_last": False},
            NUMBERS,
            DENSE,
            r"engine.channels_last=false is for images, got .* \[6\]; use",
        ),
        (
            {"channels_last": True},
            IMAGES,
            DENSE,
            "=true is for models with convolutions, and MLP has none; use",
        ),
        (
            {"channels_last": True, "mode": "stacked"},
            IMAGES,
            CNN,
            "changes nothing with engine.mode=stacked",
        ),
        (
            {"channels_last": False, "mode": "unfold"},
            IMAGES,
            CNN,
            "changes nothing with engine.mode=unfold",
        ),
        ({"mode": "unfold"}, NUMBERS, DENSE, "engine.mode=unfold is for models with convolutions"),
    ],
)
def test_what_cannot_be_followed_is_refused(pinned, data, model, message):
    task = task_for(data, model)
    with pytest.raises(RequestError, match=message):
        make_engine(task, data, LocalWork(0.1, 5), replace(AUTO, **pinned))


@pytest.mark.parametrize("channels_last", [None, True, False])
def test_the_layout_reaches_the_task_on_a_cpu_too(channels_last):
    task = task_for(IMAGES, CNN)
    make_engine(task, IMAGES, LocalWork(0.1, 5), replace(AUTO, channels_last=channels_last)).close()
    x = task.images(torch.zeros(2, 2, 6, 6))
    assert x.is_contiguous(memory_format=torch.channels_last) == (channels_last is not False)
