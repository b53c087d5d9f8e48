"""What the training loop needs of a method."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from selftaught.networks import EmbeddingNetwork


class Learner(nn.Module, ABC):
    """A method of learning embeddings: its networks, its batches, its losses. All its state is in ``state_dict``."""

    network: EmbeddingNetwork
    """What is trained; its head "f" is the embedding of the finished model."""

    batch_head: str
    """The head whose embeddings of all training images :meth:`batches` is given."""

    losses: tuple[str, ...]
    """The names of what :meth:`forward` returns; the first is the one to minimize."""

    groups_images: bool = False
    """Whether it pulls different images onto one point on purpose, so that an image's views need not stay nearest."""

    head: str = "linear"
    """The kind of the head "f", a name in :data:`selftaught.networks.HEADS`."""

    @abstractmethod
    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        """One epoch of batches from the embeddings of all images: steps×batch image indices."""

    @abstractmethod
    def forward(self, images: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """The losses of one batch, from uint8 rows n×3×H×W and the image that each row shows."""

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:  # noqa: ARG002
        """Groups of parameters that learn beside the network's, each with its "lr": a predictor, proxies."""
        return []

    def start_from(self, network: Mapping[str, Tensor]) -> None:
        """Take over the state of another learner's network; heads that this one does not have are left out."""
        own = self.network.state_dict()
        self.network.load_state_dict({name: tensor for name, tensor in network.items() if name in own})

    def after_backward(self) -> None:
        """Called between backward and the optimizer's step."""

    def after_step(self) -> None:
        """Called after the optimizer's step."""
