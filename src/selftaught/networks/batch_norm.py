"""Batch norm over the rows of all processes, on CPUs too, where PyTorch's own does not work."""

from typing import Any

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch import distributed as dist
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from selftaught.errors import UsageError
from selftaught.parallel import world

KNOWN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, BatchNormAct2d)


def with_global_batch_norm(module: nn.Module) -> nn.Module:
    """The module with every batch norm in it over all processes; parameters, buffers and their names stay the same.

    A layer in eval mode, which includes frozen ones, works as before. In a single process nothing changes.
    """
    if world() == 1:
        return module
    if isinstance(module, _BatchNorm) and not isinstance(module, GlobalBatchNorm):
        if type(module) not in KNOWN:
            raise UsageError(
                f"the batch norm {type(module).__name__} is not known to work across processes: train in one process"
            )
        return GlobalBatchNorm(module).train(module.training)
    for name, child in module.named_children():
        setattr(module, name, with_global_batch_norm(child))
    return module


class GlobalBatchNorm(_BatchNorm):
    """A batch norm whose statistics in training are those of the rows of all processes together."""

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
        self.weight, self.bias = layer.weight, layer.bias
        for name, buffer in layer.named_buffers(recurse=False):
            setattr(self, name, buffer)
        for name, child in layer.named_children():  # timm's layers hold the dropout and activation that follow
            self.add_module(name, child)

    def forward(self, x: Tensor) -> Tensor:
        """n×C or n×C×…"""
        if world() == 1 or not (self.training or self.running_mean is None):
            x = _BatchNorm.forward(self, x)
        else:
            x = _normalized(self, x)
        for child in self.children():
            x = child(x)
        return x

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002, its name in PyTorch
        if input.ndim < 2:
            raise ValueError(f"batch norm takes n×C×… inputs, but this one has {input.ndim} dimensions")

    @torch.no_grad()
    def track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Update the running statistics with those of one batch."""
        if not self.training or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        weight = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        unbiased = variance * (count / (count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean), weight)
        self.running_var.lerp_(unbiased.to(self.running_var), weight)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _normalized(layer: GlobalBatchNorm, x: Tensor) -> Tensor:
    """x, normalized over all processes; not compiled, because they wait for each other here."""
    y, mean, variance, count = _Normalize.apply(x, layer.weight, layer.bias, layer.eps)
    layer.track(mean, variance, count)
    return y  # type: ignore[no-any-return]


class _Normalize(torch.autograd.Function):
    """x → normalized x, and the mean, variance and number of values of each channel in all processes."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        own_variance, own_mean = torch.var_mean(x.to(wide), axes, correction=0)
        own_count = own_mean.new_full((1,), x.numel() / x.shape[1])
        own = torch.cat([own_mean, own_variance, own_count])
        everything = own.new_empty(world() * len(own))
        dist.all_gather_into_tensor(everything, own)
        means, variances, counts = everything.view(world(), -1).split([x.shape[1], x.shape[1], 1], dim=1)
        count = counts.sum()
        mean = (means * counts).sum(0) / count
        variance = ((variances + (means - mean).square()) * counts).sum(0) / count
        ctx.save_for_backward(x, weight, mean, (variance + eps).rsqrt(), count)
        ctx.mark_non_differentiable(mean, variance, count)
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        x, weight, mean, scale, count = ctx.saved_tensors
        shape = [1, -1] + [1] * (x.ndim - 2)
        axes = [axis for axis in range(x.ndim) if axis != 1]
        normalized = (x.to(mean) - mean.view(shape)) * scale.view(shape)
        gradient = gradient.to(mean)
        sums = torch.stack([gradient.sum(axes), (gradient * normalized).sum(axes)])
        for_bias, for_weight = sums.clone() if weight is not None else (None, None)
        dist.all_reduce(sums)
        shared = (sums / count).view(2, *shape)
        outer = scale if weight is None else scale * weight
        for_x = (gradient - shared[0] - normalized * shared[1]) * outer.view(shape)
        return for_x.to(x.dtype), for_weight, for_bias, None
