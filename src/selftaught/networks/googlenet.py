"""GoogLeNet as in Caffe: Inception-v1 without batch norm."""

import re
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = {
    "inception_3a": (64, 96, 128, 16, 32, 32),
    "inception_3b": (128, 128, 192, 32, 96, 64),
    "inception_4a": (192, 96, 208, 16, 48, 64),
    "inception_4b": (160, 112, 224, 24, 64, 64),
    "inception_4c": (128, 128, 256, 24, 64, 64),
    "inception_4d": (112, 144, 288, 32, 64, 64),
    "inception_4e": (256, 160, 320, 32, 128, 128),
    "inception_5a": (256, 160, 320, 32, 128, 128),
    "inception_5b": (384, 192, 384, 48, 128, 128),
}
"""Output channels of 1x1, 3x3_reduce, 3x3, 5x5_reduce, 5x5 and pool_proj."""

POOLED = ("inception_3b", "inception_4e")
"""Modules that a pool follows."""

LAYER = re.compile(
    r"(?P<block>conv[12]|inception_[345][a-e])[/._]"
    r"(?P<layer>7x7_s2|1x1|3x3_reduce|3x3|5x5_reduce|5x5|pool_proj)[/._]"
    r"((?P<weight>weights?|w|w_0|0)|(?P<bias>bias|biases|b|b_0|1))"
)
CLASSIFIER = re.compile(r"loss[123][/._]")


def from_caffe(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the names of :class:`GoogLeNet`, from Caffe's names of layers and blobs in any spelling.

    Biases become vectors, and the three classifiers are left out. Names that are not Caffe's stay as they are.

    Example:
        >>> list(from_caffe({"inception_3a/1x1_b": torch.zeros(1, 1, 1, 64), "loss3/classifier_b": torch.zeros(1000)}))
        ['inception_3a.1x1.bias']
    """
    renamed = {}
    for name, tensor in state.items():
        found = LAYER.fullmatch(name)
        if found is None:
            if not CLASSIFIER.match(name):
                renamed[name] = tensor
        elif found["bias"]:
            renamed[f"{found['block']}.{found['layer']}.bias"] = tensor.flatten()
        else:
            renamed[f"{found['block']}.{found['layer']}.weight"] = tensor
    return renamed


class GoogLeNet(nn.Module):
    """Images n×3×H×W to a feature map n×1024×H/32×W/32: 7×7 at 224 and at 227 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.ModuleDict({"7x7_s2": nn.Conv2d(3, 64, 7, stride=2, padding=3)})
        self.conv2 = nn.ModuleDict({"3x3_reduce": nn.Conv2d(64, 64, 1), "3x3": nn.Conv2d(64, 192, 3, padding=1)})
        channels = 192
        for name, widths in WIDTHS.items():
            self.add_module(name, Inception(channels, widths))
            channels = sum(widths[branch] for branch in (0, 2, 4, 5))
        self.norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75, k=1.0)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.norm(halve(_rectified(self.conv1["7x7_s2"], images)))
        x = _rectified(self.conv2["3x3_reduce"], x)
        x = halve(self.norm(_rectified(self.conv2["3x3"], x)))
        for name in WIDTHS:
            x = self.get_submodule(name)(x)
            x = halve(x) if name in POOLED else x
        return x

    def blocks(self, *names: str) -> list[nn.Module]:
        """Inception blocks by the ends of their names, such as 3a."""
        return [self.get_submodule(f"inception_{name}") for name in names]


class Inception(nn.ModuleDict):
    """Four branches side by side; ``widths`` as in WIDTHS."""

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        one, three_reduce, three, five_reduce, five, projected = widths
        layers = {
            "1x1": nn.Conv2d(channels, one, 1),
            "3x3_reduce": nn.Conv2d(channels, three_reduce, 1),
            "3x3": nn.Conv2d(three_reduce, three, 3, padding=1),
            "5x5_reduce": nn.Conv2d(channels, five_reduce, 1),
            "5x5": nn.Conv2d(five_reduce, five, 5, padding=2),
            "pool_proj": nn.Conv2d(channels, projected, 1),
        }
        super().__init__(layers)

    def forward(self, x: Tensor) -> Tensor:
        branches = (
            _rectified(self["1x1"], x),
            _rectified(self["3x3"], _rectified(self["3x3_reduce"], x)),
            _rectified(self["5x5"], _rectified(self["5x5_reduce"], x)),
            _rectified(self["pool_proj"], F.max_pool2d(x, 3, stride=1, padding=1)),
        )
        return torch.cat(branches, 1)


def _rectified(layer: nn.Module, x: Tensor) -> Tensor:
    return F.relu(layer(x), inplace=True)


def halve(x: Tensor) -> Tensor:
    """Half the height and width, rounded up: the maximum of each 3×3 window."""
    return F.max_pool2d(x, 3, stride=2, ceil_mode=True)
