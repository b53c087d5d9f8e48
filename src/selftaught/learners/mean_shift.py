"""Mean shift: pull an image to the neighbors of its other view (Koohpayegani et al., ICCV 2021); BYOL with one."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners.learner import Learner
from selftaught.learners.queue import Queue, embedding_queue
from selftaught.learners.target import Target
from selftaught.method import random_batches
from selftaught.method.precision import in_full_precision
from selftaught.networks import EmbeddingNetwork, Encoder, linear_head
from selftaught.recipes import Settings

TOP = {"msf": 5, "byol": 1}
"""To how many neighbors an image is pulled, its own other view included."""

PREDICTOR_RATE = 10
"""How much faster the predictor learns than the heads. It starts at random, and what the network learns through it
makes the embedding worse until it predicts well."""


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
    which there is no queue. The predictor starts from the normalized embedding, the one that is evaluated.
    """

    batch_head = "f"
    losses = ("loss",)

    def __init__(self, encoder: Encoder, settings: Settings, images: int) -> None:  # noqa: ARG002
        super().__init__()
        assert settings.batch_size is not None
        self.batch_size, self.top = settings.batch_size, min(TOP[settings.method], settings.batch_size)
        features, dim = encoder.features, settings.dim
        self.network = EmbeddingNetwork(encoder, {"f": linear_head(features, dim)}, normalize=True)
        self.target = Target(self.network, settings.momentum)
        self.predictor = nn.Sequential(
            nn.Linear(dim, features, bias=False), nn.BatchNorm1d(features), nn.ReLU(), nn.Linear(features, dim)
        )
        self.queue = embedding_queue(settings) if self.top > 1 else None

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        return random_batches(len(embeddings), self.batch_size, generator)

    def forward(self, images: Tensor, ids: Tensor) -> dict[str, Tensor]:  # noqa: ARG002
        first, second = images.chunk(2)
        queries, targets = self.network(first)["f"], self.target(second)
        with torch.autocast(images.device.type, enabled=False):
            predictions = self.predictor(queries)
            neighbors = targets[:, None] if self.queue is None else nearest_in_queue(targets, self.queue, self.top)
        return {"loss": mean_shift_loss(predictions, neighbors)}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        return [{"params": list(self.predictor.parameters()), "lr": PREDICTOR_RATE * head_lr}]

    def after_step(self) -> None:
        self.target.follow(self.network)
