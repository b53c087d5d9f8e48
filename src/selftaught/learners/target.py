"""The second network of MoCo, BYOL and mean shift: a moving average of the one that learns."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selftaught.method import MovingAverage
from selftaught.networks import EmbeddingNetwork
from selftaught.recipes import Fraction, Settings


@dataclass(frozen=True)
class TargetSettings(Settings):
    """The settings of a method with a target network."""

    momentum: Fraction = 0.999
    """m of the moving average."""


class Target(nn.Module):
    """A copy of a network that follows it: in eval mode unless its learner says otherwise, and without gradient."""

    def __init__(self, leader: EmbeddingNetwork, momentum: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(leader).requires_grad_(False).eval()
        self.momentum = momentum
        self._average: MovingAverage | None = None

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """uint8 n×3×H×W → the embeddings of head f, n×d."""
        f: Tensor = self.network(images)["f"]
        return f

    def follow(self, leader: EmbeddingNetwork) -> None:
        """θ ← m θ + (1 - m) θ of the leader."""
        if self._average is None:  # before now, the parameters may still be moved
            self._average = MovingAverage(self.network, leader, self.momentum)
        self._average.update()

    def train(self, mode: bool = True) -> "Target":  # noqa: ARG002
        return super().train(False)
