"""Mean shift: pull an image to the neighbors of its other view (Koohpayegani et al., ICCV 2021); BYOL with one."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from selftaught.learners.learner import Learner
from selftaught.learners.target import Queue, QueueSettings, Target, TargetSettings, make_queue
from selftaught.method import in_full_precision
from selftaught.networks import Encoder, batch_norm_mlp

TOP = 5
"""The number of neighbors that mean shift pulls an image to, its own other view included."""


@in_full_precision
def mean_shift_loss(predictions: Tensor, neighbors: Tensor) -> Tensor:
    """The mean squared distance of normalized predictions to their neighbors.

    Args:
        predictions: n×d, of any length.
        neighbors: n×k×d, each of length 1.

    Example:
        >>> mean_shift_loss(torch.tensor([[3.0, 0.0]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
        tensor(1.)
    """
    cosines = (F.normalize(predictions)[:, None] * neighbors).sum(2)
    return (2 - 2 * cosines).mean()


def nearest_in_queue(targets: Tensor, queue: Queue, top: int) -> Tensor:
    """Put n×d targets into the queue; returns the nearest rows of each, n×top×d, the target itself first."""
    slots = queue.put(targets)
    similarities = queue.similarities(targets).scatter(1, slots[:, None], torch.inf)  # first even among equal rows
    return queue.rows[similarities.topk(top, dim=1).indices]


class _MeanShift(Learner):
    """First views, through a predictor, are pulled to the neighbors of the target encoder's second views.

    The embedding is a projector's output; the predictor takes it before it is normalized.
    """

    head = "projector"

    def __init__(self, encoder: Encoder, settings: TargetSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        self.network = self.make_network(encoder, settings)
        self.target = Target(self.network, settings.momentum)
        self.predictor = batch_norm_mlp(settings.dim, 2 * encoder.features, settings.dim)

    @abstractmethod
    def neighbors(self, targets: Tensor) -> Tensor:
        """The rows to which the predictions are pulled, from n×d targets: n×k×d."""

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        first, second = images.chunk(2)
        features, targets = self.network.encoder(first), self.target(second)
        with torch.autocast(images.device.type, enabled=False):
            return {"predictions": self.predictor(self.network.heads["f"](features)), "targets": targets}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        with torch.autocast(ids.device.type, enabled=False):
            neighbors = self.neighbors(embeddings["targets"])
        return {"loss": mean_shift_loss(embeddings["predictions"], neighbors)}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        return [{"params": list(self.predictor.parameters()), "lr": head_lr}]

    def after_step(self) -> None:
        self.target.follow(self.network)

    def train(self, mode: bool = True) -> "_MeanShift":
        """Let the target, in training, normalize by its batch too, as published, unless batch norm is frozen.

        Running statistics begin far from the data and follow with the target's momentum: with them, the target would
        be a different function from the network that must predict it.
        """
        super().train(mode)
        self.target.network.train(mode)
        return self


class MSF(_MeanShift):
    """Mean shift: an image is pulled to the nearest of a queue of targets."""

    settings_class = QueueSettings

    def __init__(self, encoder: Encoder, settings: QueueSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        self.top = min(TOP, self.batch_size)
        self.queue = make_queue(settings)

    def neighbors(self, targets: Tensor) -> Tensor:
        return nearest_in_queue(targets, self.queue, self.top)


class BYOL(_MeanShift):
    """An image is pulled to its second view alone."""

    settings_class = TargetSettings

    def neighbors(self, targets: Tensor) -> Tensor:
        return targets[:, None]
