"""BN-Inception in its Caffe lineage, with the names of the published PyTorch weights."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selftaught.networks.googlenet import halve

WIDTHS = {
    "inception_3a": (64, 64, 64, 64, 96, 32),
    "inception_3b": (64, 64, 96, 64, 96, 64),
    "inception_3c": (0, 128, 160, 64, 96, 0),
    "inception_4a": (224, 64, 96, 96, 128, 128),
    "inception_4b": (192, 96, 128, 96, 128, 128),
    "inception_4c": (160, 128, 160, 128, 160, 128),
    "inception_4d": (96, 128, 192, 160, 192, 128),
    "inception_4e": (0, 128, 192, 192, 256, 0),
    "inception_5a": (352, 192, 320, 160, 224, 128),
    "inception_5b": (352, 192, 320, 192, 224, 128),
}
"""Output channels of 1x1, 3x3_reduce, 3x3, double_3x3_reduce, double_3x3 and pool_proj.

Modules without 1x1 and pool_proj halve the resolution and pass their pooled input through.
"""

MAX_POOLED = "inception_5b"
"""The one module that projects the maximum of the neighborhood; the others project the average."""


def squeeze_norms(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The published file's batch-norm tensors, 1×C, as vectors."""
    return {name: tensor[0] if tensor.ndim == 2 and len(tensor) == 1 else tensor for name, tensor in state.items()}


class BNInception(nn.Module):
    """Images n×3×H×W to a feature map n×1024×H/32×W/32: 7×7 at 224 and at 227 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, stride=2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        channels = 192
        for name, (one, three_reduce, three, double_reduce, double, projected) in WIDTHS.items():
            stride = 1 if projected else 2
            if one:
                self._add(f"{name}_1x1", channels, one, 1)
            self._add(f"{name}_3x3_reduce", channels, three_reduce, 1)
            self._add(f"{name}_3x3", three_reduce, three, 3, stride)
            self._add(f"{name}_double_3x3_reduce", channels, double_reduce, 1)
            self._add(f"{name}_double_3x3_1", double_reduce, double, 3)
            self._add(f"{name}_double_3x3_2", double, double, 3, stride)
            if projected:
                self._add(f"{name}_pool_proj", channels, projected, 1)
            channels = one + three + double + (projected or channels)

    def forward(self, images: Tensor) -> Tensor:
        x = halve(self._layer("conv1_7x7_s2", images))
        x = halve(self._layer("conv2_3x3", self._layer("conv2_3x3_reduce", x)))
        for name, (*_, projected) in WIDTHS.items():
            three = self._layer(f"{name}_3x3", self._layer(f"{name}_3x3_reduce", x))
            double = self._layer(f"{name}_double_3x3_1", self._layer(f"{name}_double_3x3_reduce", x))
            double = self._layer(f"{name}_double_3x3_2", double)
            if projected:
                pool = F.max_pool2d if name == MAX_POOLED else F.avg_pool2d
                pooled = self._layer(f"{name}_pool_proj", pool(x, 3, stride=1, padding=1))
                x = torch.cat((self._layer(f"{name}_1x1", x), three, double, pooled), 1)
            else:
                x = torch.cat((three, double, halve(x)), 1)
        return x

    def _add(self, name: str, before: int, after: int, kernel: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        self.add_module(name, convolution)
        self.add_module(f"{name}_bn", nn.BatchNorm2d(after))

    def _layer(self, name: str, x: Tensor) -> Tensor:
        return F.relu(getattr(self, f"{name}_bn")(getattr(self, name)(x)), inplace=True)
