"""DeepCluster: classify images by the clusters they fall into (Caron et al., ECCV 2018)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners.kmeans import ClusterSettings, run_kmeans
from selftaught.learners.learner import Learner
from selftaught.method import draw
from selftaught.networks import Encoder

TEMPERATURE = 0.1
"""Scores are divided by it: from embeddings of length 1 alone they would be too small to tell clusters apart."""
CLASSIFIER_RATE = 0.5
"""The classifier's constant learning rate: at 0.1 it has learned little when an epoch of 20 steps is over, at 1 it
overshoots while all embeddings still point much the same way."""


def uniform_batches(clusters: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """One epoch of random batches in which every cluster takes part equally often: steps×batch_size image indices.

    Images of small clusters come several times; of large clusters, some images do not come at all.
    """
    n, members = len(clusters), [(clusters == c).nonzero()[:, 0] for c in clusters.unique()]
    each = -(-n // len(members))
    rows = torch.cat([draw(some, each, generator) for some in members])
    return rows[torch.randperm(len(rows), generator=generator)[: n // batch_size * batch_size]].view(-1, batch_size)


class DeepCluster(Learner):
    """Before every epoch: cluster the embeddings, start a new classifier. Then learn to predict the clusters.

    The new classifier is random and takes plain gradient steps of its own, as published; it has no bias, which would
    only follow the clusters that a batch happens to hold. The embedding is clustered without whitening: whitening was
    published for wider features, and here it would amplify directions that say little.
    """

    settings_class = ClusterSettings
    groups_images = True

    def __init__(self, encoder: Encoder, settings: ClusterSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        assert settings.clusters is not None
        self.clusters = settings.clusters
        self.network = self.make_network(encoder, settings)
        self.classifier = nn.Linear(settings.dim, self.clusters, bias=False)
        self.labels = nn.Buffer(torch.zeros(images, dtype=torch.long))

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        _, clusters = run_kmeans(embeddings, self.clusters, generator)
        self.labels.copy_(clusters)
        nn.init.normal_(self.classifier.weight, 0, 0.01)
        return uniform_batches(clusters.cpu(), self.batch_size, generator)

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        with torch.autocast(ids.device.type, enabled=False):
            scores = self.classifier(embeddings["f"]) / TEMPERATURE
            return {"loss": F.cross_entropy(scores, self.labels[ids])}

    @torch.no_grad()
    def after_backward(self) -> None:
        """Take the classifier's step, without momentum."""
        weight = self.classifier.weight
        if weight.grad is not None:
            weight -= CLASSIFIER_RATE * weight.grad
            weight.grad = None
