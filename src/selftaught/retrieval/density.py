"""What neighbors alone tell of a collection: how many photos of one thing it holds, how clear its groups are."""

import math

import torch
from torch import Tensor

from selftaught.retrieval.groups import Neighbors

WINDOW = 3
"""The places over which the spacing is averaged, before a fall and after it."""
LEAST_STEP = 0.1
"""A fall of the spacing by less than this share says nothing."""
CLEAR_STEP = 0.25
"""A fall by this share or more shows things in most of the photos, not only in some that are nearly copies."""
NOISE = 4.0
"""The standard deviations by which the spacing must fall; it has many places to fall by chance."""
LEFT_OUT = 0.1
"""The share of the photos with the largest jumps that is left out: those of copies can be of any size."""
COPY, MOST_COPIED = 0.5, 0.5
"""A photo whose nearest is less than this share as far as its second nearest has a copy, and is left out too; unless
that is so for the second share of all photos, which then are pairs and not copies."""


def neighbor_spacing(near: Neighbors) -> Tensor:
    """k · mean log(d(k + 1) / d(k)) for each k, where d(k) is the distance to the k-th nearest; without copies.

    In an evenly filled cloud it is the same for all k: one over the number of dimensions. After the last photo of the
    same thing distances jump, so it is higher up to that k than beyond it.
    """
    distances = near.distances.double()
    copied = distances[:, 0] < COPY * distances[:, 1]
    kept = distances[~copied] if copied.double().mean() < MOST_COPIED else distances
    kept = kept[(kept > 0).all(1)]
    steps = (kept[:, 1:] / kept[:, :-1]).log().sort(0).values
    return steps[: math.ceil((1 - LEFT_OUT) * len(steps))].mean(0) * torch.arange(1, distances.shape[1])


def shared_neighbors(near: Neighbors) -> float:
    """The share of its nearest that a row has in common with each of them, on average: high where rows form groups.

    Example:
        >>> from selftaught.retrieval.groups import find_neighbors
        >>> points = torch.tensor([[0.0], [1.0], [2.1], [50.0], [51.0], [52.1]])
        >>> shared_neighbors(find_neighbors(points, k=2))  # two groups of three: the third is common
        0.5
    """
    own = near.indices
    return float((own[own][..., None] == own[:, None, None, :]).any(-1).double().mean())


def estimate_photos_per_thing(near: Neighbors, least_step: float = LEAST_STEP) -> int | None:
    """The number of photos of one thing at which the spacing of neighbors falls most; None if it does not fall.

    None means that things have more photos than there are neighbors in ``near``, or that these vectors do not tell
    things apart.

    Args:
        near: the neighbors of at least a sample of the photos.
        least_step: the share by which the spacing must fall.

    Example:
        >>> from selftaught.retrieval.groups import find_neighbors
        >>> random = torch.Generator().manual_seed(0)
        >>> things = 10 * torch.randn(100, 1, 8, generator=random).expand(-1, 4, -1)
        >>> estimate_photos_per_thing(find_neighbors((things + torch.randn(100, 4, 8, generator=random)).flatten(0, 1)))
        4
    """
    n = len(near.indices)
    if n < 2 or near.indices.shape[1] < 2 * WINDOW:
        return None
    spacing = neighbor_spacing(near)
    falls = {
        k: (spacing[max(0, k - WINDOW) : k].mean() / spacing[k : k + WINDOW].mean()).item()
        for k in range(1, len(spacing) - WINDOW + 1)
    }
    best = max(falls, key=lambda k: falls[k])
    if not falls[best] - 1 > max(least_step, NOISE / n**0.5):
        return None
    # A high jump raises the means of several places; take the place where it ends.
    edge = max(range(max(1, best - WINDOW + 1), best + 1), key=lambda k: (spacing[k - 1] / spacing[k]).item())
    return edge + 1  # these neighbors, and the photo itself
