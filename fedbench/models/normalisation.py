"""BatchNorm in a model that is a flat vector: its running statistics, and batches with padding."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_KINDS = (nn.BatchNorm1d, nn.BatchNorm2d)
COUNTER = "num_batches_tracked"  # a buffer of torch's layers that is not part of a model here


class PaddedBatchNorm(_BatchNorm):
    """BatchNorm over the real examples of a batch.

    With ``real``, the layer normalises by the batch and moves its running statistics in place, as
    torch's layer does in training; without, it normalises by the running statistics. A single
    value per channel has no variance: it is normalised by the running statistics, which stay.

    Attributes:
        real: The weights of the batch's examples [B], 0 on padding; None in evaluation.
        elementary: Whether the layer is vectorised over clients.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float
    real: Tensor | None
    elementary = False

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised x [B, channels, ...]."""
        if self.real is not None and self._is_masked(self.real):
            return self._masked(x, self.real)
        several = x.numel() > x.shape[1]
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.real is not None and several,
            momentum=self.momentum,
            eps=self.eps,
        )

    def _is_masked(self, real: Tensor) -> bool:
        """Return whether a batch may have padding, which the fused kernel does not know."""
        # a look at the weights would make the host wait for a GPU
        return self.elementary or real.is_cuda or not bool(real.all())

    def _masked(self, x: Tensor, real: Tensor) -> Tensor:
        """Normalise a batch with padding, in operations that can be vectorised."""
        ones = [1] * (x.dim() - 2)
        all_but_channels = (0, *range(2, x.dim()))

        def by_channel(v: Tensor) -> Tensor:
            return v.view(-1, *ones)

        mask = (real > 0).to(real.dtype)
        count = mask.sum() * x[0, 0].numel()
        mask = mask.view(-1, 1, *ones)
        values = x.to(real.dtype)
        count = count.clamp(min=1)  # a batch may be padding alone
        mean = (values * mask).sum(all_but_channels) / count
        apart = values - by_channel(mean)
        squares = apart.square() * mask
        variance = squares.sum(all_but_channels) / count

        several = count > 1
        free = (count - 1).clamp(min=1)
        unbiased = variance.detach() * count / free
        self._move(self.running_mean, mean.detach(), several)
        self._move(self.running_var, unbiased, several)
        mean = torch.where(several, mean, self.running_mean)
        variance = torch.where(several, variance, self.running_var)

        scale = self.weight * torch.rsqrt(variance + self.eps)
        y = values - by_channel(mean)
        y = y * by_channel(scale)
        y = y + by_channel(self.bias)
        return y.to(x.dtype)

    def _move(
        self,
        statistic: Tensor,
        value: Tensor,
        several: Tensor,
    ) -> None:
        """Move a running statistic towards the batch's value in place, if it has several values."""
        moved = torch.lerp(statistic, value, self.momentum)
        statistic.copy_(torch.where(several, moved, statistic))


def statistics_of(model: nn.Module) -> dict[str, torch.Size]:
    """Return the running statistics of a model: names and shapes, in the model's order."""
    shapes = {}
    for place in batch_norms(model):
        layer = model.get_submodule(place)
        for name in ("running_mean", "running_var"):
            shapes[f"{place}.{name}"] = layer.get_buffer(name).shape
    return shapes


def batch_norms(model: nn.Module, supported: bool = True) -> list[str]:
    """Return the places of BatchNorm layers, the supported ones or the others.

    Supported are torch's layers for vectors, sequences and images, with weights, biases and
    running statistics that follow the batches at a constant rate.
    """
    places = []
    for place, module in model.named_modules():
        if not isinstance(module, _BatchNorm):
            continue
        known = type(module) in (*_KINDS, PaddedBatchNorm)
        tracks = module.affine and module.track_running_stats and module.momentum is not None
        if (known and tracks) == supported:
            places.append(place)
    return places


def with_padding(model: nn.Module) -> nn.Module:
    """Return a model after turning its BatchNorm layers into ``PaddedBatchNorm``."""
    for place in batch_norms(model):
        module = model.get_submodule(place)
        module.__class__ = PaddedBatchNorm
        module.register_buffer("real", None)
    return model
