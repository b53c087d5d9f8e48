"""UDML-SS: metric learning with clusters as classes, and rotations as a second task (Cao et al., 2019)."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners.kmeans import ClusterSettings, run_kmeans
from selftaught.learners.learner import Learner
from selftaught.learners.supervised import metric_loss
from selftaught.method import class_batches
from selftaught.networks import Encoder
from selftaught.parallel import shard
from selftaught.recipes import Within

TURNS = 4
WIDTH = 512
"""The width of the hidden layer that tells turns apart."""
BETA = 40
"""β of its multi-similarity loss; the paper of that loss uses 50."""


@dataclass(frozen=True)
class UDMLSettings(ClusterSettings):
    """The settings of UDML-SS: the defaults are those published."""

    rotation_weight: Annotated[float, Within(0)] = 0.1
    """η, the weight of predicting by how many quarter turns a view was rotated; 0 leaves that task out, as does
    training the heads alone."""


def turn_views(views: Tensor, first: int = 0) -> Tensor:
    """n×3×S×S views; the i-th is rotated by (``first`` + i) mod 4 quarter turns.

    Views must be flipped before this. A view that is flipped later shows a quarter turn as three quarters.

    Example:
        >>> turn_views(torch.arange(4).view(1, 1, 2, 2), first=2)[0, 0].tolist()
        [[3, 2], [1, 0]]
    """
    turned = torch.empty_like(views)
    for turns in range(TURNS):
        start = (turns - first) % TURNS
        turned[start::TURNS] = torch.rot90(views[start::TURNS], turns, (2, 3))
    return turned


class UDMLSS(Learner):
    """Before every epoch: cluster the embeddings, from the last centers on. Then the multi-similarity loss, in batches
    balanced over clusters, and the rotation of every first view.

    Where only heads learn there are no images to rotate, so the second task is left out.
    """

    settings_class = UDMLSettings
    loss_names = ("loss", "metric", "rotation")
    """"metric": on embeddings; "rotation": of telling quarter turns apart."""
    groups_images = True

    def __init__(self, encoder: Encoder, settings: UDMLSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        assert settings.clusters is not None
        self.per_class, self.clusters = settings.per_query, settings.clusters
        self.network = self.make_network(encoder, settings)
        self.criterion = metric_loss("multi-similarity", beta=BETA)
        self.rotation_weight = 0.0 if settings.train == "heads" else settings.rotation_weight
        self.rotation: nn.Module | None = None
        if self.rotation_weight:
            self.rotation = nn.Sequential(nn.Linear(encoder.features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, TURNS))
        self.labels = nn.Buffer(torch.zeros(images, dtype=torch.long))
        self.centers = nn.Buffer(torch.zeros(self.clusters, settings.dim))
        """The centers; all 0 before the first clustering."""

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        start = self.centers if bool(self.centers.any()) else None
        centers, clusters = run_kmeans(embeddings, self.clusters, generator, start=start)
        self.centers.copy_(centers)
        self.labels.copy_(clusters)
        return class_batches(clusters.cpu(), self.batch_size, self.per_class, generator)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        embeddings = super().embed(images)
        if self.rotation is None:
            return embeddings
        first, _ = images.chunk(2)
        features = self.network.encoder(turn_views(first, shard(self.batch_size).start))
        with torch.autocast(images.device.type, enabled=False):
            return embeddings | {"turns": self.rotation(features)}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        with torch.autocast(ids.device.type, enabled=False):
            metric = self.criterion(embeddings["f"], self.labels[ids])
            turns = embeddings.get("turns")
            if turns is None:
                return {"loss": metric, "metric": metric, "rotation": torch.zeros_like(metric)}
            rotation = F.cross_entropy(turns, torch.arange(len(turns), device=ids.device) % TURNS)
            return {"loss": metric + self.rotation_weight * rotation, "metric": metric, "rotation": rotation}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        return [] if self.rotation is None else [{"params": list(self.rotation.parameters()), "lr": head_lr}]
