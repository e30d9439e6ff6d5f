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
        elementary: Whether the layer is vectorised over clients. If not, batches on a CPU must
            have no padding, and the fused kernel takes them.
    """

    real: Tensor | None
    elementary = False

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised x [B, channels, ...]."""
        moves = self.real is not None
        if moves and (self.elementary or x.is_cuda):
            return self._masked(x)
        several = x.numel() > x.shape[1]
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=moves and several,
            momentum=self._rate,
            eps=self.eps,
        )

    @property
    def _rate(self) -> float:
        assert self.momentum is not None  # of those that ``statistics_of`` names
        return self.momentum

    def _masked(self, x: Tensor) -> Tensor:
        """Normalise a batch with padding, in operations that can be vectorised."""
        mean = self.running_mean
        variance = self.running_var
        assert self.real is not None and mean is not None and variance is not None

        ones = [1] * (x.dim() - 2)
        places = (0, *range(2, x.dim()))
        values = x.to(mean.dtype)
        mask = (self.real > 0).to(mean.dtype).view(-1, 1, *ones)
        count = mask.sum() * x[0, 0].numel()
        of_batch = (values * mask).sum(places) / count
        apart = values - of_batch.view(-1, *ones)
        spread = (apart.square() * mask).sum(places) / count

        several = count > 1
        used_mean = torch.where(several, of_batch, mean)
        used_variance = torch.where(several, spread, variance)
        scale = self.weight * torch.rsqrt(used_variance + self.eps)
        y = (values - used_mean.view(-1, *ones)) * scale.view(-1, *ones)
        y = y + self.bias.view(-1, *ones)

        unbiased = spread.detach() * (count / (count - 1).clamp(min=1))
        moved = torch.lerp(mean, of_batch.detach(), self._rate)
        mean.copy_(torch.where(several, moved, mean))
        moved = torch.lerp(variance, unbiased, self._rate)
        variance.copy_(torch.where(several, moved, variance))
        return y.to(x.dtype)


def statistics_of(model: nn.Module) -> dict[str, torch.Size]:
    """Return the running statistics of a model: names and shapes, in the model's order."""
    shapes = {}
    for place in batch_norms(model):
        for name in ("running_mean", "running_var"):
            shapes[f"{place}.{name}"] = model.get_buffer(f"{place}.{name}").shape
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
