"""Recall@k, MAP@R and R-Precision. A query never retrieves itself: it is removed by index, not by rank."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from selftaught.devices import exact_dtype
from selftaught.retrieval.neighbors import choose_block_bytes, full_precision, rank_in_blocks


@dataclass(frozen=True)
class Scores:
    """The scores of one pass over a labeled set."""

    recall: dict[int, float]
    map_at_r: float
    r_precision: float
    queries: int
    excluded: int
    """Images whose class has no other image: they have nothing to retrieve, so they are left out of the score."""

    def row(self) -> dict[str, float]:
        """The scores as they stand in a metrics file."""
        recalls = {f"recall@{k}": value for k, value in self.recall.items()}
        return recalls | {"map@r": self.map_at_r, "r_precision": self.r_precision}


def score(
    embeddings: Tensor, labels: Tensor | Sequence[int], ks: Iterable[int] = (1, 2, 4, 8), *, with_r: bool = True
) -> Scores:
    """All retrieval metrics in one pass over blocks of queries.

    Without ``with_r``, only the recalls, which take fewer neighbors; the other scores are 0.
    """
    ks = tuple(ks)
    embeddings = torch.as_tensor(embeddings)
    labels = torch.as_tensor(labels, device=embeddings.device)
    if embeddings.ndim != 2 or not embeddings.shape[1] or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"embeddings must be n×d and labels n, but they are {tuple(embeddings.shape)} and {tuple(labels.shape)}"
        )
    if any(k < 1 for k in ks):
        raise ValueError(f"every k must be at least 1, but ks = {ks}")
    at_once = max(1, choose_block_bytes(embeddings.device) // (4 * embeddings.shape[1]))
    # Their distances, up to twice as long as the longest of them, must be finite when squared.
    if not all(bool((2 * full_precision(part)).square().sum(1).isfinite().all()) for part in embeddings.split(at_once)):
        raise ValueError("the embeddings hold infinite or undefined values, or too large ones")
    _, classes, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    others = sizes[classes] - 1
    queries = others.nonzero()[:, 0]
    if not len(queries):
        raise ValueError("no class has two images, so there is nothing to retrieve")
    depth = min(len(labels) - 1, max([int(others.max()) if with_r else 1, *ks]))
    ranks = torch.arange(1, depth + 1, device=labels.device)
    hits = torch.zeros(depth, dtype=torch.long, device=labels.device)
    exact = exact_dtype(labels.device)
    precision, average = torch.zeros(2, dtype=exact, device=labels.device)
    for some in queries.split(at_once):  # not at once: that would copy all embeddings
        for start, indices in rank_in_blocks(embeddings[some], embeddings, depth, some):
            asked = some[start : start + len(indices)]
            right = classes[indices] == classes[asked, None]
            hits += (right.cumsum(1) > 0).sum(0)
            if with_r:
                r = others[asked, None]
                found = (right & (ranks <= r)).to(exact)
                precision += (found.sum(1) / r[:, 0]).sum()
                average += ((found * found.cumsum(1) / ranks).sum(1) / r[:, 0]).sum()
    n = len(queries)
    recall = (hits.cpu().double() / n).tolist()
    return Scores(
        recall={k: recall[min(k, depth) - 1] for k in ks},
        map_at_r=average.item() / n,
        r_precision=precision.item() / n,
        queries=n,
        excluded=len(labels) - n,
    )


def recall_at_k(
    embeddings: Tensor, labels: Tensor | Sequence[int], ks: Iterable[int] = (1, 2, 4, 8)
) -> dict[int, float]:
    """The fraction of queries with an image of their class among their k nearest, for each k.

    Queries whose class has no other image are left out.

    Args:
        embeddings: n×d; distances are Euclidean.
        labels: n integers.

    Example:
        >>> import torch
        >>> recall_at_k(torch.tensor([[0.0], [1.0], [1.5], [9.0]]), [0, 0, 1, 1], ks=(1, 2))
        {1: 0.5, 2: 0.75}
    """
    return score(embeddings, labels, ks, with_r=False).recall


def map_at_r(embeddings: Tensor, labels: Tensor | Sequence[int]) -> float:
    """Mean average precision at R, where R is the number of other images of the query's class.

    Args:
        embeddings: n×d; distances are Euclidean.
        labels: n integers.

    Example:
        >>> import torch
        >>> map_at_r(torch.tensor([[0.0], [1.0], [9.0], [9.5]]), [0, 0, 1, 1])
        1.0
    """
    return score(embeddings, labels, ()).map_at_r


def r_precision(embeddings: Tensor, labels: Tensor | Sequence[int]) -> float:
    """The fraction of the R nearest that are of the query's class, R the number of others of its class.

    Args:
        embeddings: n×d; distances are Euclidean.
        labels: n integers.

    Example:
        >>> import torch
        >>> r_precision(torch.tensor([[0.0], [1.0], [1.5], [9.0]]), [0, 0, 1, 1])
        0.5
    """
    return score(embeddings, labels, ()).r_precision
