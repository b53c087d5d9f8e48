"""Neighbors in bounded memory, exact or by an index, and the metrics built on them. Tensors in, tensors out."""

from selftaught.retrieval.approximate import (
    APPROXIMATE_FROM,
    Search,
    approximate_nearest,
    choose_search,
    recall_against_exact,
)
from selftaught.retrieval.metrics import Scores, map_at_r, r_precision, recall_at_k, score
from selftaught.retrieval.neighbors import full_precision, nearest

__all__ = [
    "APPROXIMATE_FROM",
    "Scores",
    "Search",
    "approximate_nearest",
    "choose_search",
    "full_precision",
    "map_at_r",
    "nearest",
    "r_precision",
    "recall_against_exact",
    "recall_at_k",
    "score",
]
