"""Self-taught metric learning: the four steps put together (Algorithm 1)."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from selftaught.learners.learner import VIEWS, Learner
from selftaught.method import MovingAverage, Reduction, Similarity, STMLLoss, neighbor_batches, parallel_search
from selftaught.networks import WHITENED_ON, EmbeddingNetwork, Encoder, linear_head, whitened_layer
from selftaught.recipes import MaybeCount, Positive, Settings, Within
from selftaught.retrieval import choose_search


@dataclass(frozen=True)
class STMLSettings(Settings):
    """The settings of STML: the defaults are the authors' code."""

    sigma: Positive = 3.0
    """σ, the bandwidth of the pairwise similarity (Eq. 5)."""
    delta: Positive = 1.0
    """δ, the margin of the contrastive loss (Eq. 1)."""
    momentum: Annotated[float | None, Within(0, 1)] = 0.999
    """m of the teacher's moving average (Eq. 4); "auto" is 1 - 1/steps of the whole run, at least 0.998: even after a
    long run, a third of the teacher's start is left."""
    teacher_dim: MaybeCount = None
    """Size of g, the embedding of the teacher; by default that of the pooled feature."""
    teacher_update: Literal["before_step", "after_step"] = "before_step"
    """Average the student before the optimizer's step (the authors' code) or after it (the paper)."""
    reduction: Reduction = "pairs"
    """Divide Eq. 1 by n(n - 1) (the authors' code) or by n (the paper)."""
    include_self: bool = True
    """Let j = i take part in Eq. 2 (the authors' code) or not (the paper)."""
    group_views: bool = True
    """Count rows of one image as nearest to each other in Eq. 6 (the authors' code), or by distance (the paper)."""
    center: bool = False
    """Subtract the mean of the batch from the teacher's embeddings before comparing them (ours; docs/best.md)."""
    batches: Literal["neighbors", "whitened", "random"] = "neighbors"
    """Batches of queries with their nearest neighbors (step 1); with the neighbors by center and whole image together,
    half-whitened (ours; docs/best.md); or drawn at random (the paper's ablation)."""
    search: Literal["auto", "exact", "approximate"] = "auto"
    """How neighbors for batches are found; "auto" is exact, except for collections that are too large for it."""
    similarity: Similarity = "contextualized"
    """The soft labels: Eq. 10, or only one of the two similarities whose mean it is (the paper's ablation)."""
    distill: bool = True
    """Let f also learn from g (Eq. 2), or not (the paper's ablation)."""
    relaxed: bool = True
    """Soft labels in Eq. 1, or labels rounded to 0 and 1 (the paper's ablation)."""


class STML(Learner):
    """Student (f and g) and teacher (its own g) on copies of one encoder."""

    batch_head = "g"
    settings_class = STMLSettings
    loss_names = ("loss", "contrastive", "distillation")
    """"contrastive": of Eq. 1, for f and g; "distillation": of Eq. 2."""

    def __init__(self, encoder: Encoder, settings: STMLSettings, images: int = 0) -> None:
        super().__init__(encoder, settings, images)
        self.settings = settings
        if settings.batches == "whitened" and settings.train == "all":  # heads get no features of centers
            self.more_views = ("center",)
        features = encoder.features
        wide = settings.teacher_dim or features
        heads = {"f": linear_head(features, settings.dim), "g": linear_head(features, wide)}
        self.network = EmbeddingNetwork(encoder, heads)
        self.teacher = EmbeddingNetwork(copy.deepcopy(encoder), {"g": linear_head(features, wide)})
        self.teacher.requires_grad_(False).eval()
        self.criterion = STMLLoss(
            k=VIEWS * settings.per_query,
            sigma=settings.sigma,
            delta=settings.delta,
            reduction=settings.reduction,
            include_self=settings.include_self,
            group_views=settings.group_views,
            similarity=settings.similarity,
            distill=settings.distill,
            relaxed=settings.relaxed,
        )
        self._average: MovingAverage | None = None

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        """Step 1."""
        if self.settings.batches == "random":
            return super().batches(embeddings, generator)
        if self.settings.batches == "whitened":
            embeddings = F.normalize(embeddings)
        search, _ = choose_search(self.settings.search, len(embeddings), embeddings.device)
        shared = partial(parallel_search, search=search)
        return neighbor_batches(embeddings, self.batch_size, self.settings.per_query, generator, search=shared)

    def place(self, embeddings: Tensor) -> Tensor:
        # Each view lies in its own main directions. One layer for both finds purer neighbors, but the models that learn
        # from these are no better (docs/best.md).
        if self.settings.batches != "whitened":
            return embeddings
        every = -(-len(embeddings) // WHITENED_ON)
        try:
            return F.normalize(whitened_layer(embeddings[::every], self.settings.dim)(embeddings))
        except ValueError:  # all are equal, or not finite, which the loop reports
            return embeddings[:, : self.settings.dim]

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            teacher = self.teacher(images)["g"]
        return {**self.network(images), "teacher": teacher}

    def loss(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        """Steps 2 and 3."""
        if self.settings.center:
            teacher = embeddings["teacher"].float()
            embeddings = {**embeddings, "teacher": teacher - teacher.mean(0)}
        return dict(zip(self.loss_names, self.criterion(**embeddings, ids=ids), strict=True))

    def start_from(self, network: Mapping[str, Tensor]) -> None:
        """Let student and teacher both start as copies of a network."""
        self.network.load_state_dict(network)
        self.teacher.load_state_dict({name: network[name] for name in self.teacher.state_dict()})

    def after_backward(self) -> None:
        if self.settings.teacher_update == "before_step":
            self._update_teacher()

    def after_step(self) -> None:
        if self.settings.teacher_update == "after_step":
            self._update_teacher()

    def train(self, mode: bool = True) -> "STML":
        super().train(mode)
        self.teacher.eval()
        return self

    def _update_teacher(self) -> None:
        """Step 4."""
        if self._average is None:  # before now, the parameters may still be moved
            assert self.settings.momentum is not None
            self._average = MovingAverage(self.teacher, self.network, self.settings.momentum)
        self._average.update()
