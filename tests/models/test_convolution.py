"""Convolutions that skip the taps of their kernel that see only padding are convolutions."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fedbench.models.convolution import VisibleConv2d, skip_hidden_taps
from fedbench.models.resnet import resnet

KERNELS = (1, 2, 3, 5, 7)


def results(layer, x):
    """The maps of a layer and the gradients of a function of them, for its parameters and x."""
    x = x.clone().requires_grad_()
    maps = layer(x)
    loss = (maps.sin() * torch.linspace(1, 2, maps.numel(), dtype=x.dtype).view_as(maps)).sum()
    return maps, *torch.autograd.grad(loss, [*layer.parameters(), x])


def pair(**options):
    """A layer and a plain convolution with the same parameters."""
    torch.manual_seed(1)
    plain = nn.Conv2d(3, 4, dtype=torch.float64, **options)
    layer = VisibleConv2d(3, 4, dtype=torch.float64, **options)
    layer.load_state_dict(plain.state_dict())
    return layer, plain


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_padding_and_size(kernel, stride, bias):
    skipped = 0
    shapes = [(side, other) for side in range(1, 8) for other in {side, 2, 8 - side}]
    for padding, (height, width) in product(range(kernel), shapes):
        if min(height, width) + 2 * padding < kernel:
            continue
        layer, plain = pair(kernel_size=kernel, stride=stride, padding=padding, bias=bias)
        x = torch.randn(2, 3, height, width, dtype=torch.float64)
        for ours, theirs in zip(results(layer, x), results(plain, x), strict=True):
            assert ours.shape == theirs.shape
            assert torch.allclose(ours, theirs, rtol=1e-13, atol=1e-14), (padding, height, width)
        skipped += flops(layer, x) < flops(plain, x)
    assert (skipped > 0) == (kernel > 1 and kernel + stride > 3)


def flops(layer, x):
    with FlopCounterMode(display=False) as counter:
        layer(x)
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "same"},
        {"padding": 2, "dilation": 2},
        {"padding": 1, "padding_mode": "circular"},
        {"padding": (0, 1)},
        {"padding": (2, 1), "stride": (1, 2)},
    ],
    ids=str,
)
def test_other_options(options):
    layer, plain = pair(kernel_size=3, **options)
    for height, width in ((3, 3), (3, 1), (3, 5), (5, 2)):
        x = torch.randn(2, 3, height, width, dtype=torch.float64)
        for ours, theirs in zip(results(layer, x), results(plain, x), strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-13, atol=1e-14), (height, width)


def test_a_tap_that_sees_only_padding_costs_nothing_and_has_no_gradient():
    layer, _ = pair(kernel_size=3, padding=1)
    x = torch.randn(2, 3, 1, 1, dtype=torch.float64)
    assert flops(layer, x) == 2 * 2 * 3 * 4  # two images, one tap
    _, weight, *_ = results(layer, x)
    seen = torch.zeros(3, 3, dtype=torch.bool)
    seen[1, 1] = True
    assert (weight[..., ~seen] == 0).all()
    assert (weight[..., seen] != 0).all()


def test_a_resnet_with_a_large_stem_needs_fewer_products():
    """Its outputs and gradients are those of torchvision's own layers."""
    torch.manual_seed(2)
    plain = resnet((3, 32, 32), 10, stem="7x7").double()
    ours = resnet((3, 32, 32), 10, stem="7x7").double()
    ours.load_state_dict(plain.state_dict())
    skip_hidden_taps(ours)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    for one, other in zip(results(ours, x), results(plain, x), strict=True):
        assert torch.allclose(one, other, rtol=1e-11, atol=1e-13)
    assert flops(ours, x) < 0.82 * flops(plain, x)


def test_a_layer_of_another_class_stays():
    class Own(nn.Conv2d):
        pass

    model = skip_hidden_taps(nn.Sequential(nn.Conv2d(1, 1, 3), Own(1, 1, 3)))
    assert [type(layer) for layer in model] == [VisibleConv2d, Own]
