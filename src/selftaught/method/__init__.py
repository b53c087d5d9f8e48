"""STML, one file per step of the paper, independent of files, loops and devices."""

from selftaught.method.batches import NeighborBatchSampler as NeighborBatchSampler
from selftaught.method.batches import class_batches as class_batches
from selftaught.method.batches import draw as draw
from selftaught.method.batches import neighbor_batches as neighbor_batches
from selftaught.method.batches import parallel_search as parallel_search
from selftaught.method.batches import random_batches as random_batches
from selftaught.method.losses import Reduction as Reduction
from selftaught.method.losses import Similarity as Similarity
from selftaught.method.losses import STMLLoss as STMLLoss
from selftaught.method.losses import distillation_loss as distillation_loss
from selftaught.method.losses import relaxed_contrastive_loss as relaxed_contrastive_loss
from selftaught.method.precision import in_full_precision as in_full_precision
from selftaught.method.similarity import contextual_from_pairwise as contextual_from_pairwise
from selftaught.method.similarity import contextual_similarity as contextual_similarity
from selftaught.method.similarity import contextualized_similarity as contextualized_similarity
from selftaught.method.similarity import pairwise_similarity as pairwise_similarity
from selftaught.method.teacher import MovingAverage as MovingAverage
