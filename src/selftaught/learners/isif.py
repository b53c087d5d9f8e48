"""ISIF: an embedding invariant to views and spreading over images (Ye et al., CVPR 2019)."""

import torch
from torch import Tensor

from selftaught.learners.learner import Learner
from selftaught.method import in_full_precision, random_batches
from selftaught.networks import EmbeddingNetwork, Encoder, linear_head
from selftaught.recipes import Settings

TEMPERATURE = 0.1


@in_full_precision
def instance_softmax_loss(first: Tensor, second: Tensor) -> Tensor:
    """The images of a batch are its classes, each with its first view's embedding f_i as weight.

    -log P(i | second view of i) - Σ_{j≠i} log(1 - P(i | first view of j)), averaged over i, where P(i | z) is the
    softmax of f_i·z over the temperature.

    Args:
        first, second: n×d of length 1, two views of n images.

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> bool(instance_softmax_loss(z, z) < instance_softmax_loss(z, z.roll(1, 0)))
        True
    """
    positives = (second @ first.T / TEMPERATURE).log_softmax(1).diagonal()
    # Row j: P(i | j). A row is nearest to itself, so no other probability is above one half.
    others = (first @ first.T / TEMPERATURE).softmax(1)
    spread = torch.log1p(-others.masked_fill(torch.eye(len(first), dtype=torch.bool, device=first.device), 0))
    return -(positives.sum() + spread.sum()) / len(first)


class ISIF(Learner):
    """The softmax embedding, on random batches, with either view in either part."""

    batch_head = "f"
    loss_names = ("loss",)

    def __init__(self, encoder: Encoder, settings: Settings, images: int) -> None:
        super().__init__(encoder, settings, images)
        self.network = EmbeddingNetwork(encoder, {"f": linear_head(encoder.features, settings.dim)}, normalize=True)

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        return random_batches(len(embeddings), self.batch_size, generator)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        embeddings: dict[str, Tensor] = self.network(images)
        return embeddings

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        first, second = embeddings["f"].chunk(2)
        return {"loss": (instance_softmax_loss(first, second) + instance_softmax_loss(second, first)) / 2}
