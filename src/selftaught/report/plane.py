"""Each photo's place in a plane, near its neighbors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selftaught.devices import available_cores
from selftaught.retrieval import choose_search

Map = NDArray[np.float32]
PERPLEXITY = 30
EARLY, LATE = 250, 500
"""Steps of t-SNE with early exaggeration, and without."""
EVERY = 25
DIRECTIONS, FEW = 50, 10_000
"""For more than FEW images, neighbors are searched in this many principal directions."""


def principal_map(vectors: Tensor) -> Map:
    """The vectors in the two directions in which they differ most, n×2; needs almost no time.

    Example:
        >>> principal_map(torch.tensor([[0.0, 0.0], [3.0, 0.0], [6.0, 0.0]])).shape
        (3, 2)
    """
    return spread(project(vectors, 2).numpy())


def neighbor_map(vectors: Tensor, start: Map, show: Callable[[int, Map], bool]) -> Map:
    """A map by t-SNE, starting from another map.

    Args:
        vectors: n×d.
        start: n×2.
        show: called with the steps done and the map so far; True stops.
    """
    from openTSNE import TSNEEmbedding
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    n = len(vectors)
    perplexity = min(PERPLEXITY, (n - 1) // 3)
    if perplexity < 2:  # too few photos for neighborhoods
        return start
    points = project(vectors, DIRECTIONS) if n > FEW and vectors.shape[1] > DIRECTIONS else vectors
    search, _ = choose_search("auto", n, points.device)
    distances, indices = search(points, points, min(3 * perplexity, n - 1), exclude=torch.arange(n))
    known = PrecomputedNeighbors(indices.numpy(), distances.numpy().astype(np.float64))
    cores = available_cores() if n > 1000 else 1  # with few images, threads wait longer than they work
    affinities = PerplexityBasedNN(knn_index=known, perplexity=perplexity, n_jobs=cores)
    method = "fft" if n > FEW else "bh"
    small = 1e-4 * start.astype(np.float64) / max(1e-12, float(start[:, 0].std()))
    embedding = TSNEEmbedding(small, affinities, negative_gradient_method=method, n_jobs=cores)
    done = 0
    for steps, strength in ((EARLY, 12), (LATE, 1)):

        def tell(step: int, _error: float, places: NDArray[np.float64], before: int = done) -> bool:
            return show(before + step, spread(np.asarray(places)))

        embedding = embedding.optimize(
            steps, exaggeration=strength, callbacks=tell, callbacks_every_iters=EVERY, momentum=0.8
        )
        done += steps
    return spread(np.asarray(embedding))


def project(vectors: Tensor, directions: int) -> Tensor:
    """The vectors in the directions in which they differ most, n×directions."""
    center = vectors.mean(0)
    spread_out = torch.zeros(vectors.shape[1], vectors.shape[1], dtype=torch.float64)
    for part in vectors.split(65536):
        spread_out += ((part - center).T @ (part - center)).double()
    axes = torch.linalg.eigh(spread_out).eigenvectors.flip(1)[:, :directions].float()
    # Both signs are equally good: a fixed one gives the same map for the same photos.
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    found = (vectors - center) @ axes
    return torch.nn.functional.pad(found, (0, max(0, directions - found.shape[1])))


def spread(places: NDArray[Any]) -> Map:
    """Places moved and scaled into the square from -1 to 1, except for a few outliers."""
    middle = np.median(places, axis=0)
    reach = np.quantile(np.abs(places - middle), 0.995) or 1.0
    return np.ascontiguousarray((places - middle) / reach, dtype=np.float32)
