"""Supervised metric learning: contrastive, multi-similarity and Proxy-Anchor loss, for reference and as a start."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from selftaught.errors import UsageError
from selftaught.learners.learner import LabeledLearner
from selftaught.networks import EmbeddingNetwork, Encoder, linear_head
from selftaught.recipes import MaybeCount, Settings

PROXY_RATE = 100
"""The learning rate of proxies divided by that of heads, as in the published Proxy-Anchor."""


@dataclass(frozen=True)
class SupervisedSettings(Settings):
    both_heads: bool = False
    """Train g beside f, as a start for STML."""
    teacher_dim: MaybeCount = None
    """Size of g; by default that of the pooled feature."""


class Supervised(LabeledLearner):
    """One loss on labeled images, in class-balanced batches.

    With ``both_heads`` the loss is also applied to g: the mean over both heads, which makes a start for STML.
    The embeddings have length 1, as all three losses expect.
    """

    settings_class = SupervisedSettings

    def __init__(self, encoder: Encoder, settings: SupervisedSettings, classes: Tensor) -> None:
        super().__init__(encoder, settings, classes)
        features = encoder.features
        heads = {"f": linear_head(features, settings.dim)}
        if settings.both_heads:
            heads["g"] = linear_head(features, settings.teacher_dim or features)
        self.network = EmbeddingNetwork(encoder, heads, normalize=True)
        count = int(classes.max()) + 1
        self.criteria = nn.ModuleDict(
            {name: metric_loss(settings.method, count, head.out_features) for name, head in heads.items()}
        )

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        classes = self.classes[ids]
        with torch.autocast(ids.device.type, enabled=False):
            parts = [criterion(embeddings[name], classes) for name, criterion in self.criteria.items()]
        return {"loss": torch.stack(parts).mean()}

    def extra_groups(self, head_lr: float) -> list[dict[str, Any]]:
        proxies = list(self.criteria.parameters())
        return [{"params": proxies, "lr": PROXY_RATE * head_lr}] if proxies else []


class MetricLoss(nn.Module):
    """A loss of pytorch-metric-learning, with the pairs that its miner picks if it has one."""

    def __init__(self, loss: nn.Module, miner: Callable[[Tensor, Tensor], Any] | None = None) -> None:
        super().__init__()
        self.loss, self._miner = loss, miner

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        pairs = () if self._miner is None else (self._miner(embeddings, classes),)
        loss: Tensor = self.loss(embeddings, classes, *pairs)
        return loss


def metric_loss(name: str, classes: int = 0, dim: int = 0, beta: float = 50) -> MetricLoss:
    """A loss by name, as published, except that the margin of 0.5 of the contrastive loss is ours.

    ``classes`` and ``dim`` are for Proxy-Anchor, ``beta`` for the multi-similarity loss.
    """
    try:
        from pytorch_metric_learning import losses, miners
    except ImportError:
        raise UsageError(
            "supervised losses come from pytorch-metric-learning: pip install 'selftaught[research]'"
        ) from None
    if name == "contrastive":
        return MetricLoss(losses.ContrastiveLoss(pos_margin=0, neg_margin=0.5))
    if name == "multi-similarity":
        return MetricLoss(losses.MultiSimilarityLoss(alpha=2, beta=beta, base=0.5), miners.MultiSimilarityMiner(0.1))
    if name == "proxy-anchor":
        return MetricLoss(losses.ProxyAnchorLoss(classes, dim, margin=0.1, alpha=32))
    raise ValueError(f"there is no supervised loss {name!r}")
