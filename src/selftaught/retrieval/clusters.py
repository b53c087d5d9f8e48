"""Groups whose number is not given, and the nearest group of new vectors."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from selftaught.errors import UsageError
from selftaught.retrieval.groups import connect, find_neighbors, members
from selftaught.retrieval.neighbors import nearest

HIERARCHY_UP_TO = 30_000
"""The most vectors that HDBSCAN groups in minutes; more are grouped by the graph of mutual neighbors."""
GRAPH_NEIGHBORS = 3
INSIDE = 0.75
LEAST = 2**-10
"""The smallest limit, as a part of the center's length: a center may be kept in half precision."""


@dataclass(frozen=True)
class Centers:
    """g groups by the means of their vectors, g×d, and how far from them a vector may be, g."""

    means: Tensor
    limits: Tensor

    def assign(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest group of each of n vectors, -1 beyond its limit, and the distance to its center."""
        if not len(self.means):
            return torch.full((len(vectors),), -1), torch.full((len(vectors),), torch.inf)
        distances, groups = (x[:, 0] for x in nearest(vectors, self.means, 1))
        return torch.where(distances <= self.limits[groups], groups, -1), distances


def find_groups(vectors: Tensor, smallest: int) -> Tensor:
    """The number of each vector's group, -1 for none: dense regions of at least ``smallest`` vectors.

    Groups are numbered from the largest on. Up to 30,000 vectors are grouped by HDBSCAN, more by mutual neighbors.
    """
    if len(vectors) < max(2, smallest):
        return torch.full((len(vectors),), -1)
    if len(vectors) <= HIERARCHY_UP_TO:
        found = _by_density(vectors, smallest)
    else:
        found = connect(len(vectors), find_neighbors(vectors, GRAPH_NEIGHBORS).mutual_pairs())
    groups = torch.full((len(vectors),), -1)
    for number, rows in enumerate(sorted(members(found, smallest), key=lambda rows: -len(rows))):
        groups[rows] = number
    return groups


def find_centers(vectors: Tensor, groups: Tensor) -> Centers:
    """The center of each group, and its limit: the distance within which three quarters of new vectors should lie.

    This keeps out most vectors that belong to no group. A mean of m vectors is nearer to these than to new ones, by
    the factor √((m - 1) / (m + 1)).
    """
    means, limits = [], []
    for number in range(int(groups.max()) + 1 if len(groups) else 0):
        part = vectors[groups == number].double()
        means.append(part.mean(0))
        distance = torch.linalg.vector_norm(part - means[-1], dim=1).quantile(INSIDE)
        limit = distance * ((len(part) + 1) / max(1, len(part) - 1)) ** 0.5
        limits.append(torch.maximum(limit, LEAST * torch.linalg.vector_norm(means[-1])))
    if not means:
        return Centers(vectors.new_empty(0, vectors.shape[1]), vectors.new_empty(0))
    return Centers(torch.stack(means).to(vectors.dtype), torch.stack(limits).to(vectors.dtype))


def _by_density(vectors: Tensor, smallest: int) -> Tensor:
    if find_spec("sklearn") is None:
        raise UsageError("groups are found with scikit-learn: pip install 'selftaught[groups]'")
    from sklearn.cluster import HDBSCAN

    # Leaves of the hierarchy, because larger branches may hold nearly all vectors.
    model = HDBSCAN(min_cluster_size=max(2, smallest), min_samples=1, cluster_selection_method="leaf", copy=True)
    return torch.from_numpy(model.fit_predict(vectors.float().cpu().numpy())).long()
