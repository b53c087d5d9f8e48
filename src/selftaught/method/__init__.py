"""STML, one file per step of the paper. Knows nothing of files, loops or devices."""

from selftaught.method.batches import NeighborBatchSampler, class_batches, neighbor_batches, random_batches
from selftaught.method.losses import STMLLoss, STMLLosses, distillation_loss, relaxed_contrastive_loss
from selftaught.method.similarity import contextual_similarity, contextualized_similarity, pairwise_similarity
from selftaught.method.teacher import MovingAverage

__all__ = [
    "MovingAverage",
    "NeighborBatchSampler",
    "STMLLoss",
    "STMLLosses",
    "class_batches",
    "contextual_similarity",
    "contextualized_similarity",
    "distillation_loss",
    "neighbor_batches",
    "pairwise_similarity",
    "random_batches",
    "relaxed_contrastive_loss",
]
