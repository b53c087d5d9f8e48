"""SLADE, as far as STML's authors describe it: self-training with k-means pseudo labels."""

import torch
from torch import Tensor

from selftaught.learners.clustering import ClusterSettings
from selftaught.learners.kmeans import kmeans
from selftaught.learners.learner import Learner
from selftaught.learners.supervised import metric_loss
from selftaught.method import class_batches
from selftaught.networks import EmbeddingNetwork, Encoder, linear_head

UNKNOWN = -1
"""The class of an image without label, until it is given one."""


class Slade(Learner):
    """The multi-similarity loss on labels and on pseudo labels of the unlabeled images.

    The teacher is the network that the run starts with: its embeddings of the unlabeled images are clustered once,
    before the first epoch, and each cluster is a class from then on. (The published method also ranks pairs by their
    similarity and learns basis vectors; that is not here.)
    """

    batch_head = "f"
    settings_class = ClusterSettings
    labeled = True
    loss_names = ("loss",)
    groups_images = True

    def __init__(self, encoder: Encoder, settings: ClusterSettings, classes: Tensor) -> None:
        super().__init__(encoder, settings, classes)
        assert settings.clusters is not None
        self.per_class, self.clusters = settings.neighbors, settings.clusters
        self.network = EmbeddingNetwork(encoder, {"f": linear_head(encoder.features, settings.dim)}, normalize=True)
        self.criterion = metric_loss("multi-similarity", 0, settings.dim)
        self.classes: Tensor
        self.register_buffer("classes", classes)

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        unlabeled = (self.classes == UNKNOWN).nonzero()[:, 0]
        if len(unlabeled):
            _, clusters = kmeans(embeddings[unlabeled], min(self.clusters, len(unlabeled)), generator)
            self.classes[unlabeled] = self.classes.max() + 1 + clusters.to(self.classes)
        return class_batches(self.classes.cpu(), self.batch_size, self.per_class, generator)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        embeddings: dict[str, Tensor] = self.network(images)
        return embeddings

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        with torch.autocast(ids.device.type, enabled=False):
            return {"loss": self.criterion(embeddings["f"], self.classes[ids])}
