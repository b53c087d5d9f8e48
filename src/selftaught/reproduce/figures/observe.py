"""Embeddings and similarities of the images, by the networks of each kept epoch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from selftaught.data import (
    Advance,
    FileReader,
    View,
    ViewRequest,
    embed_batches,
    in_batches,
    stack_embeddings,
    view_seed,
)
from selftaught.errors import ImageError, SelftaughtError, printable
from selftaught.learners import VIEWS, STMLSettings
from selftaught.method import neighbor_batches
from selftaught.networks import EmbeddingNetwork
from selftaught.recipes import Settings
from selftaught.reproduce.figures.labeled_images import LabeledImages
from selftaught.reproduce.figures.relations import NAMES, Relations, aurocs, between_images, relate
from selftaught.training import Snapshot

BATCHES = 10
"""The AUROC is the mean over this many batches."""
EMBEDDED_AT_ONCE = 64


@dataclass(frozen=True)
class BatchSimilarities:
    """Step 2 on nearest-neighbor batches of the images."""

    auroc: dict[str, float]
    """The AUROC of each similarity, the mean over the batches."""
    queries: list[int]
    """The images that the first batch was built around."""
    relations: Relations
    """The similarities in the first batch, one row per image."""


@dataclass(frozen=True)
class EpochResult:
    """One epoch: the embeddings f of the whole images (n×d, if asked for), and step 2 (if there is a teacher)."""

    epoch: int
    vectors: Tensor | None
    similarities: BatchSimilarities | None

    @property
    def title(self) -> str:
        return "Before training" if self.epoch == 0 else f"After epoch {self.epoch}"


@dataclass(frozen=True)
class Observer:
    """Embeds the labeled images with networks."""

    labeled: LabeledImages
    reader: FileReader
    device: torch.device
    seed: int
    advance: Advance

    def observe(self, snapshot: Snapshot, epoch: int, *, vectors: bool) -> EpochResult:
        f = self._all(snapshot.student, "f", "center").cpu() if vectors else None
        similarities = None
        if snapshot.teacher is not None and isinstance(snapshot.settings, STMLSettings):
            batches = self._batches(self._all(snapshot.student, "g", "squash"), snapshot.settings)
            similarities = self._relate_batches(snapshot.teacher, batches, snapshot.settings)
        return EpochResult(epoch, f, similarities)

    def _batches(self, embeddings: Tensor, settings: Settings) -> Tensor:
        """BATCHES×batch_size image indices; the same queries at every epoch, each with its neighbors at that time."""
        size = fitting_batch(len(self.labeled), settings)
        generator = torch.Generator().manual_seed(self.seed)
        drawn = neighbor_batches(embeddings, size, settings.per_query, generator)
        while len(drawn) < BATCHES:
            drawn = torch.cat([drawn, neighbor_batches(embeddings, size, settings.per_query, generator)])
        return drawn[:BATCHES]

    def _relate_batches(self, teacher: EmbeddingNetwork, batches: Tensor, settings: STMLSettings) -> BatchSimilarities:
        requests = [
            ViewRequest(self.labeled.images.path(index), "random", view_seed(self.seed, step, position))
            for step, batch in enumerate(batches.tolist())
            for position, index in enumerate(batch)
        ]
        rows = self._embed(teacher, requests)["g"].cpu().split(VIEWS * batches.shape[1])
        related = [relate(g, batch.repeat_interleave(VIEWS), settings) for g, batch in zip(rows, batches, strict=True)]
        each = [aurocs(relations, self.labeled.classes) for relations in related]
        means = {name: float(torch.tensor([row[name] for row in each]).nanmean()) for name in NAMES}
        return BatchSimilarities(means, batches[0, :: settings.per_query].tolist(), between_images(related[0]))

    def _all(self, network: EmbeddingNetwork, head: str, view: View) -> Tensor:
        return self._embed(network, [ViewRequest(str(path), view) for path in self.labeled.paths])[head]

    def _embed(self, network: EmbeddingNetwork, requests: list[ViewRequest]) -> dict[str, Tensor]:
        network.eval()
        batches = embed_batches(network, self.reader.read(in_batches(requests, EMBEDDED_AT_ONCE)), self.device)
        heads, failures = stack_embeddings(batches, len(requests), self.advance)
        if failures:
            index, reason = failures[0]
            raise ImageError(f"{printable(requests[index].path)} could be read before and cannot be now ({reason})")
        return heads


def fitting_batch(images: int, settings: Settings) -> int:
    """The run's batch size, or the largest one that ``images`` images allow."""
    k = settings.per_query
    if images < 2 * k:
        raise SelftaughtError(
            f"{images} images are too few for the figures: the run's batches, of {k} images per query, "
            f"need at least {2 * k}"
        )
    return min(settings.batch_size or images, images) // k * k


def cost(images: int, settings: Settings, *, vectors: bool, teacher: bool) -> int:
    """The number of image files that one epoch reads."""
    return images * (vectors + teacher) + (BATCHES * fitting_batch(images, settings) if teacher else 0)
