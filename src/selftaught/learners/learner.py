"""What the training loop needs of a method."""

from abc import ABC, abstractmethod

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

    @abstractmethod
    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        """One epoch of batches from the embeddings of all images: steps×batch image indices."""

    @abstractmethod
    def forward(self, images: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """The losses of one batch, from uint8 rows n×3×H×W and the image that each row shows."""

    def after_backward(self) -> None:
        """Called between backward and the optimizer's step."""

    def after_step(self) -> None:
        """Called after the optimizer's step."""
