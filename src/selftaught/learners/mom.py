"""MOM: hard triplets where the manifold and the space disagree (Iscen et al., CVPR 2018)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.errors import SelftaughtError
from selftaught.learners.learner import VIEWS, Learner
from selftaught.learners.manifold import Pools, mine
from selftaught.method import draw, in_full_precision
from selftaught.networks import Encoder, fit_whitening
from selftaught.recipes import Positive, Settings

TRIPLET = 3
POOL, GRAPH = 50, 30
"""Images in a pool, and neighbors in the graph; fewer, down to 5, if that is more than one in a hundred images."""
FEWEST = 5
HARDEST = 10
"""A negative is drawn from this many images of its pool that are nearest now."""
WIDTH, SHARE = 512, 4
"""The most dimensions of the mined vectors, and the fewest images for each dimension: whitened in all directions that a
few images span, all pairs of images would be equally far apart."""
NOTHING = (
    "MOM finds nothing to learn: no image has others that are near along the graph of neighbors and far in space, and "
    "the reverse; give more or more different images, or choose another --method"
)


@dataclass(frozen=True)
class MOMSettings(Settings):
    margin: Positive = 0.5
    """By how much, in squared distance, negatives must be farther from their anchor than positives."""


def mine_pools(features: Tensor) -> Pools:
    """Every image's hard positives and negatives, from n×d pooled features.

    The features are whitened before; pools and graph are smaller where there are few images.
    """
    pool, graph = pool_sizes(len(features))
    return mine(mining_vectors(features), graph, pool, 2 * pool, pool)


def pool_sizes(images: int) -> tuple[int, int]:
    """The number of images in a pool, and of neighbors in the graph, for ``images`` images."""
    return min(POOL, max(FEWEST, images // 100)), min(GRAPH, max(FEWEST, images // 100))


def mining_vectors(features: Tensor) -> Tensor:
    """The whitened features, of length 1: the space that is mined."""
    try:
        kept = max(2, min(WIDTH, features.shape[1], len(features) // SHARE))
        weight, bias = fit_whitening(features, kept, alpha=1)
    except ValueError:
        raise SelftaughtError(NOTHING) from None
    return F.normalize(features @ weight.T + bias)


@in_full_precision
def weighted_triplet_loss(embeddings: Tensor, weights: Tensor, margin: float) -> Tensor:
    """The mean over triplets of weight × [margin + ‖anchor - positive‖² - ‖anchor - negative‖²]₊.

    Args:
        embeddings: …×3×d: anchor, positive, negative.
        weights: …, one per triplet.

    Example:
        >>> weighted_triplet_loss(torch.tensor([[[0.0], [1.0], [2.0]]]), torch.tensor([2.0]), margin=4.0)
        tensor(2.)
    """
    anchors, positives, negatives = embeddings.unbind(-2)
    near, far = ((anchors - others).square().sum(-1) for others in (positives, negatives))
    return (weights * F.relu(margin + near - far)).mean()


class MOM(Learner):
    """Before training every image's hard positives and negatives are mined, once, from the pooled features.

    Positives are near along the neighbor graph but not in space, negatives the reverse; a positive counts by how near
    it is along the graph. A batch is triplets, each of whose views makes one of its own.
    """

    batch_head = "pooled"
    settings_class = MOMSettings
    groups_images = True

    def __init__(self, encoder: Encoder, settings: MOMSettings, images: int) -> None:
        super().__init__(encoder, settings, images)
        self.margin = settings.margin
        self.pool, _ = pool_sizes(images)
        self.network = self.make_network(encoder, settings, pooled=nn.Identity())
        self.positives = nn.Buffer(torch.full((images, self.pool), -1))
        self.negatives = nn.Buffer(torch.full((images, self.pool), -1))
        self.weights = nn.Buffer(torch.zeros(images, self.pool))
        self.mined = nn.Buffer(torch.zeros((), dtype=torch.bool))

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        """steps×(3 × triplets) image indices: anchor, positive, negative, and so on, as many as fit into a batch."""
        if not bool(self.mined):
            self._mine(embeddings)
        whole = (self.positives[:, 0] >= 0) & (self.negatives[:, 0] >= 0)
        anchors, each = whole.nonzero()[:, 0].cpu(), self.batch_size // TRIPLET
        if not len(anchors):
            raise SelftaughtError(NOTHING)
        steps = len(embeddings) // self.batch_size
        anchors = draw(anchors, steps * each, generator)
        at = anchors.to(embeddings.device)
        positives, negatives = self.positives[at], self.negatives[at]
        similarities = torch.bmm(embeddings[negatives.clamp(min=0)], embeddings[at][:, :, None])[:, :, 0]
        hardest = similarities.masked_fill(negatives < 0, -torch.inf).topk(min(HARDEST, self.pool), dim=1).indices
        hardest = negatives.gather(1, hardest)
        others = [_one_of(pool.cpu(), generator) for pool in (positives, hardest)]
        return torch.stack([anchors, *others], 1).view(steps, each * TRIPLET)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"f": self.network(images)["f"]}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        z = embeddings["f"].view(VIEWS, -1, TRIPLET, embeddings["f"].shape[1])
        anchors, positives, _ = ids.view(VIEWS, -1, TRIPLET)[0].unbind(1)
        weights = torch.where(self.positives[anchors] == positives[:, None], self.weights[anchors], 0).sum(1)
        return {"loss": weighted_triplet_loss(z, weights, self.margin)}

    def _mine(self, features: Tensor) -> None:
        """Fill the pools; weights are divided by their mean, so that the loss has the scale of others."""
        found = mine_pools(features if features.is_cuda else features.cpu())
        self.positives.copy_(found.positives)
        self.negatives.copy_(found.negatives)
        self.weights.copy_(found.weights / found.weights[found.positives >= 0].mean().clamp(min=1e-12))
        self.mined.fill_(True)


def _one_of(pool: Tensor, generator: torch.Generator) -> Tensor:
    """One entry of each row, drawn from those that are not -1, which come first: n×k → n."""
    counts = (pool >= 0).sum(1)
    places = (torch.rand(len(pool), generator=generator) * counts).long()
    return pool.gather(1, places[:, None])[:, 0]
