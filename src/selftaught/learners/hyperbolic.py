"""Graded distances in hyperbolic space, after the idea of UHML (Yan et al., 2021); the loss is ours."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners.kmeans import ClusterSettings, run_kmeans
from selftaught.learners.learner import Learner
from selftaught.method import class_batches, in_full_precision
from selftaught.networks import Encoder

STEEPNESS = math.sinh(2) ** 2
"""The factor of 1 - cosine, for the points to which the exponential map sends vectors of length 1, at curvature 1."""
LEAST = 1e-6
"""The smallest product: below it rows are equal except for rounding, and the logarithm of 0 is infinite."""
STEP = 0.1 * math.log(10)
"""By how much the logarithm of the distance should grow from one level to the next."""
MOST_LINKED = 20_000
"""The most images that are linked one by one; for more, the centers of clusters are linked."""
MANY_CLUSTERS = 1000
"""From this many fine clusters on, ten make a coarse one; below it, two do."""


def hyperbolic_distance(cosines: Tensor) -> Tensor:
    """The distance in the Poincaré ball between vectors of length 1 that were mapped into it at its center.

    All of them lie on one sphere, where the distance depends on the cosine alone.

    Example:
        >>> hyperbolic_distance(torch.tensor([0.5, -1.0]))
        tensor([2.7139, 4.0000])
    """
    t = (STEEPNESS * (1 - cosines)).clamp(min=LEAST)
    return torch.log1p(t + (t * (t + 2)).sqrt())


@in_full_precision
def graded_ratio_loss(embeddings: Tensor, fine: Tensor, coarse: Tensor) -> Tensor:
    """The mean over triplets of (log d(a, p) - log d(a, l) + step × level)².

    p is of a's fine cluster and l is not; the level is 1 if l is of a's coarse cluster, else 2.

    Args:
        embeddings: n×d of length 1.
        fine, coarse: the clusters of each row, n.
    """
    logs = hyperbolic_distance(embeddings @ embeddings.T).log()
    same = fine[:, None] == fine
    positives = same & ~torch.eye(len(fine), dtype=torch.bool, device=fine.device)
    x, p = logs * positives, positives.sum(1)
    levels = 1 + (coarse[:, None] != coarse).to(logs)
    y, q = (logs - STEP * levels) * ~same, (~same).sum(1)
    # Σ over p and l of (x - y)², without a cube of triplets.
    totals = q * x.square().sum(1) + p * y.square().sum(1) - 2 * x.sum(1) * y.sum(1)
    return totals.sum() / (p * q).sum().clamp(min=1)


def nested_clusters(embeddings: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The fine and the coarse cluster of each of n×d embeddings, by Ward's linkage; at most ``count`` fine ones."""
    from scipy.cluster.hierarchy import fcluster, linkage

    points, own = embeddings, torch.arange(len(embeddings))
    if len(points) > MOST_LINKED:
        points, own = run_kmeans(embeddings, count, generator)
    tree = linkage(points.double().cpu().numpy(), "ward")
    counts = count, max(2, count // (2 if count < MANY_CLUSTERS else 10))
    fine, coarse = (torch.from_numpy(fcluster(tree, t, "maxclust") - 1).long() for t in counts)
    return fine[own.cpu()], coarse[own.cpu()]


class Hyperbolic(Learner):
    """Before every epoch: cluster the embeddings at two levels. Then ask for distances in fixed ratios: within a fine
    cluster, within a coarse one, beyond.
    """

    settings_class = ClusterSettings
    groups_images = True

    def __init__(self, encoder: Encoder, settings: ClusterSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        assert settings.clusters is not None
        self.per_class, self.clusters = settings.per_query, settings.clusters
        self.network = self.make_network(encoder, settings)
        self.fine = nn.Buffer(torch.zeros(images, dtype=torch.long))
        self.coarse = nn.Buffer(torch.zeros(images, dtype=torch.long))

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        fine, coarse = nested_clusters(F.normalize(embeddings), self.clusters, generator)
        self.fine.copy_(fine)
        self.coarse.copy_(coarse)
        return class_batches(fine, self.batch_size, self.per_class, generator)

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        return {"loss": graded_ratio_loss(embeddings["f"], self.fine[ids], self.coarse[ids])}
