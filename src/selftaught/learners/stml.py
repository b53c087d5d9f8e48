"""Self-taught metric learning: the four steps put together (Algorithm 1)."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from selftaught.learners.learner import VIEWS, Learner
from selftaught.method import MovingAverage, STMLLoss, neighbor_batches, random_batches
from selftaught.method.batches import parallel_search
from selftaught.networks import EmbeddingNetwork, Encoder, linear_head
from selftaught.recipes import Settings
from selftaught.retrieval import choose_search


class STML(Learner):
    """Student (f and g) and teacher (its own g) on copies of one encoder."""

    batch_head = "g"
    losses = ("loss", "contrastive", "distillation")

    def __init__(self, encoder: Encoder, settings: Settings, images: int = 0) -> None:  # noqa: ARG002
        super().__init__()
        assert settings.batch_size is not None
        self.batch_size = settings.batch_size
        self.neighbors = settings.neighbors
        self.kind_of_batches = settings.batches
        self.kind_of_search = settings.search
        self.update_before_step = settings.teacher_update == "before_step"
        features = encoder.features
        wide = settings.teacher_dim or features
        heads = {"f": linear_head(features, settings.dim), "g": linear_head(features, wide)}
        self.network = EmbeddingNetwork(encoder, heads)
        self.teacher = EmbeddingNetwork(copy.deepcopy(encoder), {"g": linear_head(features, wide)})
        self.teacher.requires_grad_(False).eval()
        self.loss = STMLLoss(
            k=VIEWS * settings.neighbors,
            sigma=settings.sigma,
            delta=settings.delta,
            reduction=settings.reduction,
            include_self=settings.include_self,
            group_views=settings.group_views,
            similarity=settings.similarity,
            distill=settings.distill,
            relaxed=settings.relaxed,
        )
        self.momentum = settings.momentum
        self._average: MovingAverage | None = None

    def batches(self, embeddings: Tensor, generator: torch.Generator) -> Tensor:
        """Step 1."""
        if self.kind_of_batches == "random":
            return random_batches(len(embeddings), self.batch_size, generator)
        return neighbor_batches(embeddings, self.batch_size, self.neighbors, generator, search=self._search)

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            teacher = self.teacher(images)["g"]
        return {**self.network(images), "teacher": teacher}

    def compare(self, embeddings: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
        """Steps 2 and 3."""
        return dict(zip(self.losses, self.loss(**embeddings, ids=ids), strict=True))

    def start_from(self, network: Mapping[str, Tensor]) -> None:
        """Student and teacher both begin as that network."""
        self.network.load_state_dict(network)
        self.teacher.load_state_dict({name: network[name] for name in self.teacher.state_dict()})

    def after_backward(self) -> None:
        if self.update_before_step:
            self._update_teacher()

    def after_step(self) -> None:
        if not self.update_before_step:
            self._update_teacher()

    def train(self, mode: bool = True) -> "STML":
        super().train(mode)
        self.teacher.eval()
        return self

    def _update_teacher(self) -> None:
        """Step 4."""
        if self._average is None:  # only now are the parameters where they will stay
            self._average = MovingAverage(self.teacher, self.network, self.momentum)
        self._average.update()

    def _search(
        self, queries: Tensor, gallery: Tensor, k: int, *, exclude: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        search, _ = choose_search(self.kind_of_search, len(gallery), gallery.device)
        return parallel_search(queries, gallery, k, exclude=exclude, search=search)
