"""One network as several learners that look through different attention masks (ABE; Kim et al., ECCV 2018)."""

import copy

import torch
from torch import Tensor, nn

from selftaught.networks.googlenet import GoogLeNet
from selftaught.networks.small import SmallNetwork

ENSEMBLE = "_abe"
"""The end of the names of these backbones."""
LEARNERS = 8


class AttentionEnsemble(nn.Module):
    """Images n×3×H×W to the features of all learners side by side, n×(learners × F), each averaged over its map.

    The first layers are shared. For each learner their output is multiplied by a mask, which comes from an attention
    network shared by all and a layer of its own. The last layers see the maps of all learners as one batch.
    """

    def __init__(self, first: nn.Module, attention: nn.Module, last: nn.Module, channels: int, width: int) -> None:
        """``channels``, ``width``: the channels of the outputs of ``first`` and ``attention``, which have one size."""
        super().__init__()
        self.first, self.attention, self.last = first, attention, last
        self.masks = nn.ModuleList(nn.Conv2d(width, channels, 1) for _ in range(LEARNERS))
        for layer in self.masks:
            assert isinstance(layer, nn.Conv2d)
            assert layer.bias is not None
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        shared = self.first(images)
        attended = self.attention(shared)
        masked = torch.stack([shared * mask(attended).sigmoid() for mask in self.masks], 1).flatten(0, 1)
        features: Tensor = self.last(masked).mean((2, 3))
        return features.view(len(images), -1)


def attention_ensemble(network: nn.Module) -> AttentionEnsemble:
    """An ensemble that takes over the layers and weights of a network.

    As published, GoogLeNet is shared up to its third pool, and the attention is a copy of its blocks 4a to 4e.
    """
    if isinstance(network, GoogLeNet):
        return _around_googlenet(network)
    assert isinstance(network, SmallNetwork)
    channels = 128
    convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    attention = nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU())
    return AttentionEnsemble(network.layers[:9], attention, network.layers[9:], channels, channels)


def _around_googlenet(network: GoogLeNet) -> AttentionEnsemble:
    relu, pool = nn.ReLU(), nn.MaxPool2d(3, stride=2, ceil_mode=True)
    stem = [network.conv1["7x7_s2"], relu, pool, network.norm, network.conv2["3x3_reduce"], relu]
    stem += [network.conv2["3x3"], relu, network.norm, pool]
    first = nn.Sequential(*stem, *network.blocks("3a", "3b"), pool)
    fourth = network.blocks("4a", "4b", "4c", "4d", "4e")
    last = nn.Sequential(*fourth, pool, *network.blocks("5a", "5b"))
    return AttentionEnsemble(first, copy.deepcopy(nn.Sequential(*fourth)), last, channels=480, width=832)
