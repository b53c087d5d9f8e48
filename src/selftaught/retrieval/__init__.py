"""Neighbors in bounded memory, exact or by an index, metrics and groups built on them. Tensors in, tensors out."""

from selftaught.retrieval.approximate import (
    APPROXIMATE_FROM,
    Search,
    approximate_nearest,
    choose_search,
    recall_against_exact,
)
from selftaught.retrieval.clusters import Centers, find_centers, find_groups
from selftaught.retrieval.density import CLEAR_STEP, LEAST_STEP, estimate_photos_per_thing, shared_neighbors
from selftaught.retrieval.groups import Neighbors, Pairs, connect, diameter, find_neighbors, members
from selftaught.retrieval.metrics import Scores, map_at_r, r_precision, recall_at_k, score
from selftaught.retrieval.neighbors import full_precision, nearest
from selftaught.retrieval.threshold import Proposal, propose_threshold
