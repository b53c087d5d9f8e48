"""Mean shift: pull an image to the neighbors of its other view (Koohpayegani et al., ICCV 2021); BYOL with one."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from selftaught.learners.learner import Learner
from selftaught.learners.queue import Queue, embedding_queue
from selftaught.learners.target import Target
from selftaught.method import random_batches
from selftaught.method.precision import in_full_precision
from selftaught.networks import EmbeddingNetwork, Encoder
from selftaught.networks.model import batch_norm_mlp, projector_head
from selftaught.recipes import Settings

TOP = {"msf": 5, "byol": 1}
"""To how many neighbors an image is pulled, its own other view included."""


@in_full_precision
def mean_shift_loss(predictions: Tensor, neighbors: Tensor) -> Tensor:
    """The mean squared distance of normalized predictions to their neighbors.

    Args:
        predictions: n×d, of any length.
        neighbors: n×k×d, each of length 1.

    Example:
        >>> import torch
        >>> mean_shift_loss(torch.tensor([[3.0, 0.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
        tensor(1.)
    """
    cosines = (F.normalize(predictions)[:, None] * neighbors).sum(2)
    return (2 - 2 * cosines).mean()


def nearest_in_queue(targets: Tensor, queue: Queue, top: int) -> Tensor:
    """Put n×d targets in, then each with its nearest rows of the queue: n×top×d, the target itself first."""
    slots = queue.put(targets)
    similarities = queue.similarities(targets).scatter(1, slots[:, None], torch.inf)  # first also among its equals
    return queue.rows[similarities.topk(top, dim=1).indices]


class MeanShift(Learner):
    """First views, through a predictor, are pulled to what is nearest to the target encoder's second views.

    ``settings.method`` says how many are pulled to: "msf" to five of a queue, "byol" to the second view alone, for
    which there is no queue. The embedding is a projector's output; the predictor takes it before it is normalized.
    """

    batch_head = "f"
    losses = ("loss",)
    head = "projector"

    def __init__(self, encoder: Encoder, settings: Settings, images: int) -> None:  # noqa: ARG002
        super().__init__()
        assert settings.batch_size is not None
        self.batch_size, self.top = settings.batch_size, min(TOP[settings.method], settings.batch_size)
        features, dim = encoder.features, settings.dim
        self.network = EmbeddingNetwork(encoder, {"f": projector_head(features, dim)}, normalize=True)
        self.target = Target(self.network, settings.momentum)
        self.predictor = batch_norm_mlp(dim, 2 * features, dim)
        self.queue = embedding_queue(settings) if self.top > 1 else None

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        return random_batches(len(embeddings), self.batch_size, generator)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        first, second = images.chunk(2)
        features, targets = self.network.encoder(first), self.target(second)
        with torch.autocast(images.device.type, enabled=False):
            return {"predictions": self.predictor(self.network.heads["f"](features)), "targets": targets}

    def compare(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        targets = embeddings["targets"]
        with torch.autocast(ids.device.type, enabled=False):
            neighbors = targets[:, None] if self.queue is None else nearest_in_queue(targets, self.queue, self.top)
        return {"loss": mean_shift_loss(embeddings["predictions"], neighbors)}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        return [{"params": list(self.predictor.parameters()), "lr": head_lr}]

    def after_step(self) -> None:
        self.target.follow(self.network)

    def train(self, mode: bool = True) -> "MeanShift":
        """In training the target normalizes by its batch too, as published, save where batch norm is frozen.

        By running statistics, which begin far from the data and follow with the target's momentum, it would be another
        function than the network that is to predict it.
        """
        super().train(mode)
        self.target.network.train(mode)
        return self
