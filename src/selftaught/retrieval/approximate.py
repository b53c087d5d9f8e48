"""Neighbors by a FAISS index, for collections too large for exact search on a CPU."""

from importlib.util import find_spec
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from selftaught.errors import UsageError
from selftaught.retrieval.neighbors import nearest, sort_by_distance

APPROXIMATE_FROM = 500_000
"""From this many images on, "auto" uses FAISS on a CPU. Below, exact search by matrix products is about as fast."""
PROBED = 16
"""The number of lists of the index that are searched for a query."""
POINTS_PER_LIST, ITERATIONS = 32, 10
"""The number of gallery rows that the center of a list is learned from, and the rounds in which it is learned."""

Kind = Literal["auto", "exact", "approximate"]


class Search(Protocol):
    """A function like :func:`nearest`: (q×d, n×d, k) → distances and indices, both q×k."""

    def __call__(
        self, queries: Tensor, gallery: Tensor, k: int, *, exclude: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...


def choose_search(kind: Kind, n: int, device: torch.device) -> tuple[Search, str]:
    """The search for n images, and the reason for it.

    Example:
        >>> choose_search("auto", 5000, torch.device("cpu"))[1]
        'exact: under 500,000 images'
    """
    if kind == "exact":
        return nearest, "exact: as asked for"
    if kind == "approximate":
        if find_spec("faiss") is None:
            raise UsageError("approximate search needs FAISS: pip install 'selftaught[faiss]'")
        return approximate_nearest, "approximate (FAISS): as asked for"
    if n < APPROXIMATE_FROM:
        return nearest, f"exact: under {APPROXIMATE_FROM:,} images"
    if device.type == "cuda":
        return nearest, "exact: fast enough on a GPU"
    if find_spec("faiss") is None:
        return nearest, "exact: FAISS would be faster, but is not installed (pip install 'selftaught[faiss]')"
    return approximate_nearest, f"approximate (FAISS): {n:,} images without a GPU"


def approximate_nearest(
    queries: Tensor, gallery: Tensor, k: int, *, exclude: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """About the k nearest gallery rows of each query: like :func:`nearest`, but some of them may be missed.

    The gallery is divided into lists around centers, and only the lists nearest to a query are searched. The
    distances are exact, and a query with too few results is searched exactly. Runs on the CPU, with a copy
    of the gallery.
    """
    queries, gallery = queries.detach(), gallery.detach()
    found = _search_index(queries, gallery, k + (exclude is not None)).to(queries.device)
    if exclude is not None:
        itself = found == exclude[:, None]
        found = found.gather(1, itself.byte().argsort(dim=1, stable=True)[:, :k])
    short = (found < 0).any(1).nonzero()[:, 0]
    distances, indices = sort_by_distance(queries, gallery, found.clamp(0))
    if len(short):
        own = None if exclude is None else exclude[short]
        distances[short], indices[short] = nearest(queries[short], gallery, k, exclude=own)
    return distances, indices


def recall_against_exact(queries: Tensor, gallery: Tensor, found: Tensor, *, exclude: Tensor | None = None) -> float:
    """The fraction of the true neighbors that a search has found (q×k)."""
    _, exact = nearest(queries, gallery, found.shape[1], exclude=exclude)
    return (exact[:, :, None] == found[:, None, :]).any(2).double().mean().item()


def _search_index(queries: Tensor, gallery: Tensor, k: int) -> Tensor:
    """The rows that an index finds for each query, q×k; -1 if its lists hold too few."""
    import faiss

    points = gallery.float().cpu().contiguous().numpy()
    lists = max(1, min(round(2 * len(points) ** 0.5), len(points) // POINTS_PER_LIST))
    faiss.omp_set_num_threads(torch.get_num_threads())
    index: Any = faiss.IndexIVFFlat(faiss.IndexFlatL2(points.shape[1]), points.shape[1], lists)
    index.cp.niter, index.cp.min_points_per_centroid = ITERATIONS, 1
    index.cp.max_points_per_centroid = POINTS_PER_LIST
    index.train(points)
    index.add(points)
    index.nprobe = min(lists, PROBED)
    return torch.from_numpy(index.search(queries.float().cpu().contiguous().numpy(), k)[1])
