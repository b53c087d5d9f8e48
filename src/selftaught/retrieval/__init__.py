"""Exact neighbors in bounded memory, and the metrics built on them. Tensors in, tensors out."""

from selftaught.retrieval.metrics import Scores, map_at_r, r_precision, recall_at_k, score
from selftaught.retrieval.neighbors import nearest

__all__ = ["Scores", "map_at_r", "nearest", "r_precision", "recall_at_k", "score"]
