"""Values to color points by, one per photo."""

import os
from typing import Any

import torch
from torch import Tensor

from selftaught.explore.exhibit import Exhibit
from selftaught.learners import run_kmeans
from selftaught.retrieval import choose_search

KINDS = ("folder", "cluster", "date", "distance")
CLUSTERS = 20
"""The number of groups that a person can tell apart by color."""


def color_by(exhibit: Exhibit, kind: str, version: int) -> dict[str, Any]:
    """Classes (names, and for each photo the number of its class) or numbers (None if unknown)."""
    vectors = exhibit.versions[version].vectors
    if kind == "folder":
        folders = [os.path.dirname(name) for name in exhibit.names]  # noqa: PTH120
        names = sorted(set(folders))
        numbers = {name: number for number, name in enumerate(names)}
        return {"names": [name or "no folder" for name in names], "values": [numbers[folder] for folder in folders]}
    if kind == "cluster":
        count = max(1, min(CLUSTERS, round((len(vectors) / 2) ** 0.5)))
        _, clusters = run_kmeans(vectors, count, torch.Generator().manual_seed(0))
        by_size = clusters.bincount(minlength=count).argsort(descending=True).argsort()
        return {"names": [f"cluster {n + 1}" for n in range(count)], "values": by_size[clusters].tolist()}
    if kind == "date":
        return {"unit": "date", "values": [exhibit.date(number) for number in range(len(exhibit))]}
    return {"unit": "distance", "values": nearest_distances(vectors)}


def nearest_distances(vectors: Tensor) -> list[float] | list[None]:
    """The distance of each photo to its nearest neighbor; None if it is alone."""
    if len(vectors) < 2:
        return [None] * len(vectors)
    search, _ = choose_search("auto", len(vectors), vectors.device)
    distances, _ = search(vectors, vectors, 1, exclude=torch.arange(len(vectors)))
    return [distance for (distance,) in distances.tolist()]
