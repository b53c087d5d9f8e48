"""k-means on the points' own device, in bounded memory."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from selftaught.devices import exact_dtype
from selftaught.recipes import Settings, Within
from selftaught.retrieval import full_precision, nearest

ITERATIONS = 20
"""The most of Lloyd's steps."""


@dataclass(frozen=True)
class ClusterSettings(Settings):
    """The settings of a method that labels images by clusters."""

    clusters: Annotated[int | None, Within(2)] = None
    """The number of clusters."""


@torch.no_grad()
def run_kmeans(
    points: Tensor, k: int, generator: torch.Generator, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm, until no point changes its cluster.

    It starts from greedy k-means++: random points would often put two centers into one group and none into another,
    which Lloyd's steps do not repair. An empty cluster takes over the farthest point of the largest one, so that none
    is empty in the end.

    Args:
        points: n×d.
        k: number of clusters, at most n.
        generator: a CPU generator; its state alone decides the draw.
        start: k×d centers to begin with, instead of drawn points.

    Returns:
        Centers k×d, each the mean of its points, and the cluster of each point, n.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [8.0], [9.0]])
        >>> centers, clusters = run_kmeans(points, 2, torch.Generator().manual_seed(0))
        >>> sorted(centers.flatten().tolist()), bool(clusters[0] == clusters[1])
        ([0.5, 8.5], True)
    """
    points = full_precision(points)
    if not 1 <= k <= len(points):
        raise ValueError(f"k = {k} clusters were asked for, but there are {len(points)} points")
    centers = points[_spread_out(points, k, generator)] if start is None else start.to(points)
    clusters: Tensor | None = None
    for _ in range(ITERATIONS):
        distances, indices = nearest(points, centers, 1)
        now = _filled(indices[:, 0], distances[:, 0], k)
        if clusters is not None and torch.equal(now, clusters):
            break
        clusters, centers = now, _means(points, now, k)
    assert clusters is not None
    return centers, clusters


def _spread_out(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k rows, each the best of a few drawn in proportion to the squared distance to those before."""
    n, trials = len(points), 2 + int(math.log(k))
    exact = exact_dtype(points.device)
    draws = torch.rand(k, trials, generator=generator, dtype=torch.float64).to(points.device, exact)
    points = points - points.mean(0)
    norms = points.square().sum(1)
    rows = (draws[:1, 0] * n).long().clamp(max=n - 1)
    closest = _squared_distances(rows, points, norms)[0]
    for draw in draws[1:]:
        total = closest.to(exact).cumsum(0)
        candidates = torch.searchsorted(total, draw * total[-1], right=True).clamp(max=n - 1)
        reached = torch.minimum(closest, _squared_distances(candidates, points, norms))
        best = reached.sum(1).argmin()
        closest = reached[best]
        rows = torch.cat([rows, candidates[best, None]])
    return rows


def _squared_distances(rows: Tensor, points: Tensor, norms: Tensor) -> Tensor:
    """Squared distances from the points at ``rows`` to all points: rows×n."""
    return torch.addmm(norms[rows, None] + norms, points[rows], points.T, alpha=-2).clamp(min=0)


def _filled(clusters: Tensor, distances: Tensor, k: int) -> Tensor:
    """The clusters of all points, after each empty cluster got the farthest point of the largest one."""
    sizes = clusters.bincount(minlength=k)
    for empty in (sizes == 0).nonzero()[:, 0]:
        largest = sizes.argmax()
        taken = distances.masked_fill(clusters != largest, -1).argmax()
        clusters[taken] = empty
        sizes[largest] -= 1
        sizes[empty] = 1
    return clusters


def _means(points: Tensor, clusters: Tensor, k: int) -> Tensor:
    # In float64 the order in which a GPU adds does not change the result.
    exact = exact_dtype(points.device)
    sums = torch.zeros(k, points.shape[1], dtype=exact, device=points.device)
    sums.index_add_(0, clusters, points.to(exact))
    return (sums / clusters.bincount(minlength=k)[:, None]).to(points.dtype)
