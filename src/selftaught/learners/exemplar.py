"""Exemplar: every image is a class of its own, with a learned vector (Dosovitskiy et al., 2014)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners.learner import Learner
from selftaught.learners.supervised import PROXY_RATE
from selftaught.method import in_full_precision
from selftaught.networks import Encoder
from selftaught.recipes import Settings

TEMPERATURE = 0.1
MOST_IMAGES = 1_000_000
"""The most images: each step compares all rows with the classes of all images."""


@in_full_precision
def exemplar_loss(embeddings: Tensor, classes: Tensor, ids: Tensor) -> Tensor:
    """Cross-entropy of classifying each row as the image that it shows, among all images.

    Args:
        embeddings: n×d of length 1.
        classes: images×d of any length; their directions count.
        ids: the image of each row, n.

    Example:
        >>> round(float(exemplar_loss(torch.eye(4), torch.ones(4, 4), torch.arange(4))), 4)  # ln 4
        1.3863
    """
    return F.cross_entropy(embeddings @ F.normalize(classes).T / TEMPERATURE, ids)


class Exemplar(Learner):
    """A softmax over all images. NCE has a memory instead of learned classes, and noise instead of all images.

    The classes start as the embeddings before training: random classes would need the first epochs to get there.
    """

    def __init__(self, encoder: Encoder, settings: Settings, images: int) -> None:
        super().__init__(encoder, settings, images)
        if images > MOST_IMAGES:
            raise UsageError(
                f"the method exemplar has a class for each image, and {images:,} are too many: give at most "
                f"{MOST_IMAGES:,}, or use nce, which draws some of them"
            )
        self.network = self.make_network(encoder, settings)
        self.classes = nn.Parameter(torch.zeros(images, settings.dim))
        self.started = nn.Buffer(torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        if not bool(self.started):
            self.classes.copy_(embeddings)
            self.started.fill_(True)
        return super().batches(embeddings, generator)

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        return {"loss": exemplar_loss(embeddings["f"], self.classes, ids)}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        return [{"params": [self.classes], "lr": PROXY_RATE * head_lr, "weight_decay": 0.0}]
