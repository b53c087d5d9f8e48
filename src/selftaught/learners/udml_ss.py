"""UDML-SS: metric learning with clusters as classes (Cao et al., 2019), without its auxiliary rotation task."""

import torch
from torch import Tensor

from selftaught.learners.clustering import ClusterSettings
from selftaught.learners.kmeans import kmeans
from selftaught.learners.learner import Learner
from selftaught.learners.supervised import metric_loss
from selftaught.method import class_batches
from selftaught.networks import EmbeddingNetwork, Encoder, linear_head


class UDMLSS(Learner):
    """Before every epoch: cluster the embeddings. Then the multi-similarity loss, in batches balanced over clusters.

    The published method also learns to tell by how much an image is rotated; that is not here.
    """

    batch_head = "f"
    settings_class = ClusterSettings
    loss_names = ("loss",)
    groups_images = True

    def __init__(self, encoder: Encoder, settings: ClusterSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        assert settings.clusters is not None
        self.per_class, self.clusters = settings.neighbors, settings.clusters
        self.network = EmbeddingNetwork(encoder, {"f": linear_head(encoder.features, settings.dim)}, normalize=True)
        self.criterion = metric_loss("multi-similarity", self.clusters, settings.dim)
        self.labels: Tensor
        self.register_buffer("labels", torch.zeros(images, dtype=torch.long))

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        _, clusters = kmeans(embeddings, self.clusters, generator)
        self.labels.copy_(clusters)
        return class_batches(clusters.cpu(), self.batch_size, self.per_class, generator)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        embeddings: dict[str, Tensor] = self.network(images)
        return embeddings

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        with torch.autocast(ids.device.type, enabled=False):
            return {"loss": self.criterion(embeddings["f"], self.labels[ids])}
