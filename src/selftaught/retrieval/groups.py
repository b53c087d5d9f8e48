"""Vectors that belong together: mutual neighbors, the groups that they connect, and the diameter of a group."""

from dataclasses import dataclass

import torch
from torch import Tensor

from selftaught.retrieval.neighbors import nearest

NEIGHBORS = 20
"""The number of neighbors of each vector among which mutual ones are looked for."""


@dataclass(frozen=True)
class Pairs:
    """m pairs of rows, ``first`` < ``second``, nearest first."""

    first: Tensor
    second: Tensor
    distance: Tensor

    def __len__(self) -> int:
        return len(self.distance)

    def under(self, threshold: float) -> "Pairs":
        near = self.distance <= threshold
        return Pairs(self.first[near], self.second[near], self.distance[near])


@dataclass(frozen=True)
class Neighbors:
    """The k nearest of each of n rows, itself left out: distances and indices, both n×k, on the CPU."""

    distances: Tensor
    indices: Tensor

    def among(self, rows: Tensor) -> "Neighbors":
        """The neighbors within these rows alone; missing ones are replaced by the row itself, at infinite distance.

        Example:
            >>> near = find_neighbors(torch.tensor([[0.0], [1.0], [3.0]])).among(torch.tensor([0, 2]))
            >>> near.indices.tolist(), near.distances.tolist()
            ([[1, 0], [0, 1]], [[3.0, inf], [3.0, inf]])
        """
        place = torch.full((len(self.indices),), -1)
        place[rows] = torch.arange(len(rows))
        indices = place[self.indices[rows]]
        left = indices >= 0
        order = (~left).long().argsort(dim=1, stable=True)
        distances = torch.where(left, self.distances[rows], torch.inf).gather(1, order)
        own = torch.arange(len(rows))[:, None]
        return Neighbors(distances, torch.where(left, indices, own).gather(1, order))

    def mutual_pairs(self) -> Pairs:
        """All pairs of rows where each is among the neighbors of the other.

        Example:
            >>> pairs = find_neighbors(torch.tensor([[0.0], [1.0], [1.5], [9.0]]), k=1).mutual_pairs()
            >>> pairs.first.tolist(), pairs.second.tolist(), pairs.distance.tolist()
            ([1], [2], [0.5])
        """
        n = len(self.indices)
        rows = torch.arange(n)[:, None].expand_as(self.indices)
        low, high = torch.minimum(rows, self.indices).flatten(), torch.maximum(rows, self.indices).flatten()
        keys, inverse, counts = torch.unique(low * n + high, return_inverse=True, return_counts=True)
        length = torch.zeros(len(keys), dtype=self.distances.dtype)
        length[inverse] = self.distances.flatten()
        mutual = counts == 2
        length, order = length[mutual].sort(stable=True)
        keys = keys[mutual][order]
        return Pairs(keys // n, keys % n, length)


def find_neighbors(vectors: Tensor, k: int = NEIGHBORS) -> Neighbors:
    """The k nearest other rows of each row; all of them if there are fewer."""
    rows = torch.arange(len(vectors), device=vectors.device)
    if len(rows) < 2:
        return Neighbors(torch.empty(len(rows), 0), torch.empty(len(rows), 0, dtype=torch.long))
    distances, indices = nearest(vectors, vectors, min(k, len(rows) - 1), exclude=rows)
    return Neighbors(distances.cpu(), indices.cpu())


def connect(n: int, pairs: Pairs) -> Tensor:
    """The number of each row's group, n: rows are in one group if pairs lead from one to the other.

    Example:
        >>> pairs = Pairs(torch.tensor([0, 1]), torch.tensor([1, 3]), torch.tensor([0.1, 0.2]))
        >>> connect(4, pairs).tolist()
        [0, 0, 1, 0]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = torch.ones(len(pairs), dtype=torch.bool).numpy()
    graph = coo_array((ones, (pairs.first.numpy(), pairs.second.numpy())), shape=(n, n))
    return torch.from_numpy(connected_components(graph, directed=False)[1]).long()


def members(groups: Tensor, smallest: int = 2) -> list[Tensor]:
    """The rows of each group with at least ``smallest`` rows, in the order of their first rows; -1 means no group.

    Example:
        >>> [rows.tolist() for rows in members(torch.tensor([0, 1, 0, -1, 2, 2, -1]))]
        [[0, 2], [4, 5]]
    """
    order = groups.argsort(stable=True)
    _, sizes = groups[order].unique_consecutive(return_counts=True)
    parts = [rows for rows in order.split(sizes.tolist()) if len(rows) >= smallest and groups[rows[0]] >= 0]
    return sorted(parts, key=lambda rows: int(rows[0]))


def diameter(vectors: Tensor) -> float:
    """The largest distance between two rows."""
    exact = "donot_use_mm_for_euclid_dist"
    return max(torch.cdist(part, vectors, compute_mode=exact).max().item() for part in vectors.split(1024))
