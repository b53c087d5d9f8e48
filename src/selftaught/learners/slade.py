"""SLADE: self-training with clusters as classes, trusted as far as basis vectors agree (Duan et al., CVPR 2021)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners.kmeans import ClusterSettings, run_kmeans
from selftaught.learners.learner import LabeledLearner
from selftaught.learners.supervised import metric_loss
from selftaught.method import class_batches
from selftaught.networks import Encoder
from selftaught.recipes import Within

UNKNOWN = -1
"""The class of an image without label, until it is given one."""
MOMENTUM = 0.99
"""β, how much of the global means and variances a step keeps."""
MARGIN = 0.5
"""By how much the mean similarity of positive pairs should exceed that of negative ones."""
TEMPERATURE = 0.1
"""Scores of classes are divided by this temperature, since embeddings have length 1."""


@dataclass(frozen=True)
class SladeSettings(ClusterSettings):
    basis_weight: Annotated[float, Within(0)] = 0.25
    """λ2, the weight of learning the basis vectors."""
    pairs: Literal["sure", "clusters"] = "sure"
    """Unlabeled pairs to learn from: those that the basis vectors are sure of, as published, or the clusters' own."""


def basis_similarity(embeddings: Tensor, basis: Tensor) -> Tensor:
    """The similarity of n×d embeddings by their scores with k×d basis vectors: n×n cosines."""
    scores = F.normalize(embeddings @ basis.T)
    return scores @ scores.T


def pair_moments(similarity: Tensor, pairs: Tensor) -> Tensor:
    """Mean and variance of n×n similarities over chosen pairs, an n×n mask; both are 0 if there are none.

    Example:
        >>> s = torch.tensor([[0.0, 0.2], [0.6, 0.0]])
        >>> pair_moments(s, ~torch.eye(2, dtype=torch.bool))
        tensor([0.4000, 0.0400])
    """
    weights = pairs / pairs.sum().clamp(min=1)
    mean = (weights * similarity).sum()
    return torch.stack([mean, (weights * (similarity - mean).square()).sum()])


def distribution_loss(moments: Tensor) -> Tensor:
    """How far two distributions of similarity overlap: [μ⁻ - μ⁺ + margin]₊ + v⁺ + v⁻.

    Args:
        moments: mean and variance of the similarity of positive pairs, then of negative ones, 2×2.

    Example:
        >>> distribution_loss(torch.tensor([[0.6, 0.01], [0.2, 0.04]]))
        tensor(0.1500)
    """
    means, variances = moments.unbind(1)
    return F.relu(means[1] - means[0] + MARGIN) + variances.sum()


def sure_pairs(similarity: Tensor, within: Tensor, across: Tensor) -> tuple[Tensor, Tensor]:
    """Masks of pairs at least as similar as the mean within clusters, and of pairs at most as similar as across them.

    Both are empty unless the mean within is the larger one.

    Example:
        >>> sure_pairs(torch.tensor([0.1, 0.5, 0.9]), torch.tensor(0.8), torch.tensor(0.2))
        (tensor([False, False,  True]), tensor([ True, False, False]))
    """
    apart = within > across
    return apart & (similarity >= within), apart & (similarity <= across)


class Slade(LabeledLearner):
    """The multi-similarity loss on labels, and on pairs of unlabeled images that basis vectors are sure of.

    The teacher is the network that the run starts with: its embeddings of the unlabeled images are clustered once,
    before the first epoch. The basis vectors classify the labeled images, and are to tell pairs within a cluster from
    pairs across. Unlabeled pairs more similar by them than the mean within are positives, those less similar than the
    mean across are negatives, whatever their clusters.
    """

    settings_class = SladeSettings
    loss_names = ("loss", "labeled", "unlabeled", "basis")
    """"labeled": of images with labels; "unlabeled": of pairs of images without; "basis": of the basis vectors."""

    def __init__(self, encoder: Encoder, settings: SladeSettings, classes: Tensor) -> None:
        super().__init__(encoder, settings, classes)
        assert settings.clusters is not None
        if not bool((classes == UNKNOWN).any()):
            raise UsageError("all images of --unlabeled are among those of --labeled: the method slade needs others")
        self.clusters, self.basis_weight, self.pairs = settings.clusters, settings.basis_weight, settings.pairs
        self.network = self.make_network(encoder, settings)
        self.criterion = metric_loss("multi-similarity")
        self.basis = nn.Parameter(torch.zeros(int(classes.max()) + 1, settings.dim))
        self.moments = nn.Buffer(torch.zeros(2, 2))
        """Mean and variance of the similarity of pairs within and across clusters; 0 before they are known."""

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        """steps×batch image indices: the first half with labels, the second without."""
        unknown = (self.classes == UNKNOWN).nonzero()[:, 0]
        if len(unknown):
            self._begin(embeddings, unknown, generator)
        pseudo = (self.classes >= len(self.basis)).cpu()
        half = self.batch_size // self.per_class // 2 * self.per_class
        steps, plan = len(embeddings) // self.batch_size, []
        for size, some in ((half, ~pseudo), (self.batch_size - half, pseudo)):
            images = some.nonzero()[:, 0]
            plan.append(images[class_batches(self.classes.cpu()[images], size, self.per_class, generator, steps)])
        return torch.cat(plan, 1)

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        pseudo = self.classes[ids] >= len(self.basis)
        with torch.autocast(ids.device.type, enabled=False):
            f, classes = embeddings["f"][~pseudo], self.classes[ids[~pseudo]]
            labeled = self.criterion(f, classes)
            named = F.cross_entropy(f @ self.basis.T / TEMPERATURE, classes)
            unlabeled, apart = self._self_training_losses(embeddings["f"][pseudo], ids[pseudo])
        basis = named + apart
        total = labeled + unlabeled + self.basis_weight * basis
        return {"loss": total, "labeled": labeled, "unlabeled": unlabeled, "basis": basis}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        return [{"params": [self.basis], "lr": head_lr}]

    @torch.no_grad()
    def _begin(self, embeddings: Tensor, unknown: Tensor, generator: torch.Generator) -> None:
        """Set the basis vectors to the means of classes, and the classes of unlabeled images to their clusters."""
        means = [embeddings[self.classes == number].mean(0) for number in range(len(self.basis))]
        self.basis.copy_(F.normalize(torch.stack(means)))
        _, clusters = run_kmeans(embeddings[unknown], min(self.clusters, len(unknown)), generator)
        self.classes[unknown] = len(self.basis) + clusters.to(self.classes)

    def _self_training_losses(self, f: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The ranking loss of unlabeled rows, and how far the similarities within and across clusters overlap."""
        similarity = basis_similarity(f, self.basis)
        same_image, clusters = ids[:, None] == ids, self.classes[ids]
        within = clusters[:, None] == clusters
        moments = self._follow(similarity, torch.stack([within & ~same_image, ~within]))
        sure = self.pairs == "sure"
        positive, negative = sure_pairs(similarity.detach(), *moments.detach()[:, 0]) if sure else (within, ~within)
        positive = (positive | same_image).fill_diagonal_(False)
        pairs = *positive.nonzero(as_tuple=True), *(negative & ~same_image).nonzero(as_tuple=True)
        return self.criterion.loss(f, None, pairs), distribution_loss(moments)

    def _follow(self, similarity: Tensor, pairs: Tensor) -> Tensor:
        """The global moments after this batch, with its gradient; unchanged if the batch has no such pairs."""
        found = torch.stack([pair_moments(similarity, some) for some in pairs])
        known, seen = self.moments.any(1, keepdim=True), pairs.flatten(1).any(1, keepdim=True)
        moved = torch.where(known, torch.lerp(found.detach(), self.moments.to(found), MOMENTUM), found.detach())
        self.moments.copy_(torch.where(seen, moved, self.moments.to(found)))
        return found + (self.moments - found).detach()
