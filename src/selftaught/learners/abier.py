"""ABIER: boosted parts of one embedding, kept independent by adversaries (Opitz et al., 2018). Supervised."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.learners.learner import LabeledLearner
from selftaught.method import in_full_precision
from selftaught.networks import Encoder, part_sizes
from selftaught.recipes import Settings

NEGATIVE_COST = 25
"""How much more a pair of two classes counts in the deviance than one of the same class."""
START, RATE = 0.5, 0.06
"""Boosting: the prediction for a pair before the first part, and how far a part changes it."""
NEGATIVE_WEIGHT = 2
INDEPENDENCE, BOUND = 5e-5, 1e5
"""The weight of the adversaries, and of the bounds of their layers within it, as in the released script for SOP."""
WIDTH = 512
"""The width of the adversaries' hidden layers."""


@in_full_precision
def boosted_losses(embeddings: Tensor, sizes: Sequence[int], classes: Tensor) -> list[Tensor]:
    """The loss of each part, weighted by the pairs that the parts before got wrong.

    Args:
        embeddings: n×d, parts of these sizes side by side, each of any length.
        classes: n.

    Example:
        >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> [round(float(x), 5) for x in boosted_losses(z, (2,), torch.tensor([0, 0, 1, 1]))]
        [0.15663]
    """
    same = classes[:, None] == classes
    sign = torch.where(same, 1.0, -float(NEGATIVE_COST)).to(embeddings)
    # As in the released code, the count of positives includes the pair of each row with itself.
    positives, negatives = same.sum().to(embeddings), (~same).sum().clamp(min=1).to(embeddings)
    shares = torch.where(same, 1 / positives, 1 / negatives).fill_diagonal_(0)
    weights, known, losses = torch.ones_like(sign), torch.full_like(sign, START), []
    for part in embeddings.split(list(sizes), 1):
        unit = F.normalize(part)
        act = 2 * (unit @ unit.T - 0.5) * sign
        losses.append((weights * shares * F.softplus(-act)).sum() / len(sizes))
        known = known + RATE * act.detach()
        weights = torch.sigmoid(-known) * torch.where(same, 1.0, float(NEGATIVE_WEIGHT)).to(embeddings)
    return losses


def reverse_gradient(x: Tensor) -> Tensor:
    """x itself, with a gradient of the opposite sign.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> reverse_gradient(3 * x).backward(); x.grad
        tensor([-3.])
    """
    return 2 * x.detach() - x


def weight_bound(weight: Tensor) -> Tensor:
    """How far the columns of outputs×inputs weights are from length 1."""
    return (weight.square().sum(0) - 1).square().mean()


class ABIER(LabeledLearner):
    """Three parts of growing size, each learning most from the pairs that the ones before got wrong.

    For every two parts a regressor predicts the smaller one from the larger one, and the head learns to make that
    impossible; the network below does not learn from this.
    """

    loss_names = ("loss", "boosted", "independence")
    """"boosted": of the boosted learners; "independence": of keeping them apart."""
    head = "boosted"

    def __init__(self, encoder: Encoder, settings: Settings, classes: Tensor) -> None:
        super().__init__(encoder, settings, classes)
        self.sizes = part_sizes(settings.dim)
        self.network = self.make_network(encoder, settings)
        self.pairs = list(combinations(range(len(self.sizes)), 2))
        self.regressors = nn.ModuleList(
            nn.Sequential(nn.Linear(self.sizes[j], WIDTH), nn.ReLU(), nn.Linear(WIDTH, self.sizes[i]))
            for i, j in self.pairs
        )

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        features = self.network.encoder(images)
        with torch.autocast(images.device.type, enabled=False):
            return {"f": F.normalize(self.network.heads["f"](features)), "features": features.detach()}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        boosted = torch.stack(boosted_losses(embeddings["f"], self.sizes, self.classes[ids])).sum()
        with torch.autocast(ids.device.type, enabled=False):
            independence = self.adversarial_loss(embeddings["features"])
        return {"loss": boosted + INDEPENDENCE * independence, "boosted": boosted, "independence": independence}

    def adversarial_loss(self, features: Tensor) -> Tensor:
        """How much the regressors find, which they increase and the head decreases, and the bounds of all layers."""
        weight, sizes = self.network.heads["f"].get_parameter("0.weight"), list(self.sizes)
        parts = reverse_gradient(F.linear(features, weight)).split(sizes, 1)
        total = BOUND * torch.stack([weight_bound(part) for part in weight.split(sizes)]).sum()
        for (i, j), regressor in zip(self.pairs, self.regressors, strict=True):
            total = total - (parts[i] * regressor(parts[j])).square().mean()
            for layer in regressor.modules():
                if isinstance(layer, nn.Linear):
                    total = total + BOUND * (weight_bound(layer.weight) + F.relu(layer.bias.square().sum() - 1))
        return total

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        return [{"params": list(self.regressors.parameters()), "lr": head_lr}]
