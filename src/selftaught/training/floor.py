"""The floor: what the backbone gives without any training, measured beside what training makes of it.

The center of an image and the whole of it, squashed, are two views that training never puts side by side. How surely
one finds the other among all images is the signal that told most good runs from spoiled ones without labels
(docs/best.md), so it decides which model a run serves.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.data import ImageFolder
from selftaught.networks import WHITENED_FROM, EmbeddingNetwork, Encoder, Pooling, choose_exponent, pool, whitened_layer
from selftaught.retrieval import score
from selftaught.training.evaluation import RECALLS, Evaluation
from selftaught.training.readout import Heads, Readout

SAMPLE_ON_GPU, SAMPLE_ON_CPU = 10_000, 1_500
"""The number of training images on which models are measured and whitened."""
ROWS = 1024
"""Queries that are compared with all images at once."""


@dataclass(frozen=True)
class Seen:
    """Embeddings of a sample of the training images, and of the labeled ones if there are any; n×d per head."""

    center: Heads
    whole: Heads
    labeled: Heads | None


class PooledBackbone(nn.Module):
    """A backbone pooled by average and in the encoder's own way, as heads."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.poolings: dict[Pooling, None] = dict.fromkeys(("avg", encoder.pooling))

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        x = self.encoder.feature_map(images)
        return {pooling: pool(x, pooling) for pooling in self.poolings}


@dataclass(frozen=True)
class Floor:
    """A model that training starts from, and its measurements."""

    name: str
    network: EmbeddingNetwork
    row: dict[str, float]


def measure_floors(
    evaluation: Evaluation, images: ImageFolder, dim: int, encoder: Encoder
) -> tuple[list[Floor], float]:
    """The models that the backbone gives without training, measured; and how much they are whitened, where they are."""
    pools = PooledBackbone(encoder)
    seen = look(evaluation, images, pools)
    exponent = choose_exponent(seen.center[encoder.pooling])
    floors, enough = [], len(seen.center["avg"]) >= WHITENED_FROM
    for whitened in (False, True) if enough else (False,):
        for pooling in pools.poolings:
            head = whitened_layer(seen.center[pooling], dim, exponent) if whitened else nn.Identity()
            network = EmbeddingNetwork(encoder.pooled_by(pooling), {"f": head}, normalize=True)
            row = measure(seen, _readout(pooling, head), evaluation)
            floors.append(Floor(name_floor(pooling, whitened), network, row))
    return floors, exponent


def name_floor(pooling: Pooling, whitened: bool) -> str:
    """The name of an untrained model in the files and the words of a run."""
    if pooling == "avg":
        return "half-whitened" if whitened else "plain backbone"
    return f"{'half-whitened' if whitened else 'plain'}, {'generalized mean' if pooling == 'gem' else pooling}"


def most_measured(device: torch.device) -> int:
    """The number of training images on which models are measured, if there are as many."""
    return SAMPLE_ON_GPU if device.type == "cuda" else SAMPLE_ON_CPU


def measure_model(evaluation: Evaluation, images: ImageFolder, name: str, network: EmbeddingNetwork) -> Floor:
    """A finished model, measured as untrained ones are."""
    return Floor(name, network, measure(look(evaluation, images, network), lambda heads: heads["f"], evaluation))


def look(evaluation: Evaluation, images: ImageFolder, network: nn.Module | None = None) -> Seen:
    """The embeddings, by the learner's or another network, of the images on which models are measured."""
    most = min(len(images), most_measured(evaluation.fabric.device))
    sample = torch.linspace(0, len(images) - 1, most).round().long().tolist()
    center = evaluation.embed(images, sample, "center", "looking at the centers of images", network)
    whole = evaluation.embed(images, sample, "squash", "looking at whole images", network)
    return Seen(center, whole, evaluation.labeled_set(network))


def measure(seen: Seen, readout: Readout, evaluation: Evaluation) -> dict[str, float]:
    """How surely images are found again and, with labels, the scores."""
    row = {"found_again": find_again(readout(seen.center), readout(seen.whole))}
    if seen.labeled is not None and evaluation.labeled is not None:
        row |= score(readout(seen.labeled), evaluation.labeled.classes(), RECALLS).row()
    return row


def find_again(queries: Tensor, gallery: Tensor) -> float:
    """The mean reciprocal rank at which row i of the queries finds row i of the gallery; among equals, the mean rank.

    Example:
        >>> find_again(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.1], [0.2]]))
        1.0
        >>> find_again(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.2], [0.1]]))
        0.5
        >>> find_again(torch.zeros(3, 1), torch.zeros(3, 1))
        0.5
    """
    ranks = []
    for start in range(0, len(queries), ROWS):
        distances = torch.cdist(queries[start : start + ROWS].float(), gallery.float())
        own = distances.diagonal(start)[:, None]
        nearer, further = (distances < own).sum(1), (distances > own).sum(1)  # undefined ones are neither
        ranks.append((nearer + len(gallery) - further + 1) / 2)
    return float((1 / torch.cat(ranks)).mean())


def _readout(pooling: Pooling, head: nn.Module) -> Readout:
    return lambda heads: F.normalize(head(heads[pooling]))
