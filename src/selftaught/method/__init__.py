"""STML, one file per step of the paper, independent of files, loops and devices."""

from selftaught.method.batches import (
    NeighborBatchSampler,
    class_batches,
    draw,
    neighbor_batches,
    parallel_search,
    random_batches,
)
from selftaught.method.losses import Reduction, Similarity, STMLLoss, distillation_loss, relaxed_contrastive_loss
from selftaught.method.precision import in_full_precision
from selftaught.method.similarity import (
    contextual_from_pairwise,
    contextual_similarity,
    contextualized_similarity,
    pairwise_similarity,
)
from selftaught.method.teacher import MovingAverage
