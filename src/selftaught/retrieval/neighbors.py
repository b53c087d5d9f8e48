"""Exact nearest neighbors in bounded memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor

BLOCK_BYTES = 128 * 2**20
"""Memory for one block of the query × gallery scores; a few blocks exist at once."""
GPU_BLOCK_BYTES = 512 * 2**20
"""The same on a GPU, which larger blocks keep busier."""
NEIGHBOR_BYTES = 40
"""Memory for one neighbor of one query, with what metrics compute from it."""

GALLERY_BLOCK = 65536
GROUP = 64
"""The number of columns of scores in a group, of which only the maximum is compared first."""
_EXACT = Lock()


def full_precision(x: Tensor) -> Tensor:
    """x in float32; float64 stays."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def choose_block_bytes(device: torch.device) -> int:
    """The memory for one block on a device."""
    return GPU_BLOCK_BYTES if device.type == "cuda" else BLOCK_BYTES


def nearest(queries: Tensor, gallery: Tensor, k: int, *, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k nearest gallery rows of each query by Euclidean distance, nearest first.

    The full distance matrix is never held. The distances of the winners are computed from differences,
    so rows that are equal are at distance 0.

    Args:
        queries: q×d.
        gallery: n×d, on the same device.
        k: neighbors per query; at most n, or n - 1 with ``exclude``.
        exclude: for each query the one gallery row (by index) it must not retrieve: itself.

    Returns:
        Distances and gallery indices, both q×k.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [5.0]])
        >>> distances, indices = nearest(points, points, k=1, exclude=torch.arange(3))
        >>> indices.flatten().tolist(), distances.flatten().tolist()
        ([1, 0, 1], [1.0, 1.0, 4.0])
    """
    queries, gallery = queries.detach(), gallery.detach()
    distances = queries.new_empty(len(queries), k, dtype=_common_dtype(queries, gallery))
    indices = queries.new_empty(len(queries), k, dtype=torch.long)
    for start, found in rank_in_blocks(queries, gallery, k, exclude):
        block = slice(start, start + len(found))
        distances[block], indices[block] = sort_by_distance(queries[block], gallery, found)
    return distances, indices


def sort_by_distance(queries: Tensor, gallery: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Compute distances from differences, and sort the found gallery rows (q×k) by them; returns both."""
    dtype = _common_dtype(queries, gallery)
    distances, indices = queries.new_empty(found.shape, dtype=dtype), torch.empty_like(found)
    rows = max(1, choose_block_bytes(queries.device) // (8 * found.shape[1] * queries.shape[1]))
    for start in range(0, len(found), rows):
        block = slice(start, start + rows)
        exact = torch.linalg.vector_norm(gallery[found[block]].to(dtype) - queries[block, None], dim=2)
        distances[block], order = exact.sort(dim=1, stable=True)
        indices[block] = found[block].gather(1, order)
    return distances, indices


def rank_in_blocks(queries: Tensor, gallery: Tensor, k: int, exclude: Tensor | None) -> Iterator[tuple[int, Tensor]]:
    """Rank the gallery, in blocks of queries: (first row, indices of their k nearest gallery rows in order)."""
    available = len(gallery) - (exclude is not None)
    if not 1 <= k <= available:
        raise ValueError(f"k = {k} neighbors were asked for, but each query has {available} to choose from")
    queries, gallery = queries.detach(), gallery.detach()
    dtype, block_bytes = _common_dtype(queries, gallery), choose_block_bytes(queries.device)
    columns = max(k + 1, min(len(gallery), GALLERY_BLOCK))
    rows = max(1, block_bytes // max(columns * dtype.itemsize, k * NEIGHBOR_BYTES))
    # The best so far are kept for many blocks of queries, so that each part of the gallery is prepared only once.
    many = rows * max(1, block_bytes // (4 * rows * k * (dtype.itemsize + 8)))
    memory = torch.empty(min(rows, len(queries)), min(columns, len(gallery)), dtype=dtype, device=gallery.device)
    center = _center(gallery, dtype, columns)
    for start in range(0, len(queries), many):
        own = None if exclude is None else exclude[start : start + many]
        best = _search(queries[start : start + many], gallery, k, own, center, memory)
        for first in range(0, len(best), rows):
            yield start + first, best[first : first + rows]


def _search(queries: Tensor, gallery: Tensor, k: int, exclude: Tensor | None, center: Tensor, memory: Tensor) -> Tensor:
    """The indices of the k nearest of each query, q×k, through blocks of scores in ``memory`` (rows×columns)."""
    rows, columns = memory.shape
    scores = memory.new_empty(len(queries), k)
    indices = torch.empty(len(queries), k, dtype=torch.long, device=memory.device)
    with _exact_products():
        for first in range(0, len(gallery), columns):
            # ‖q − g‖² = ‖q‖² − 2 q·g + ‖g‖²: the first term does not change a query's ranking. Centering
            # keeps the other two small, and so their difference accurate.
            part = gallery[first : first + columns] - center
            half_norms = torch.linalg.vector_norm(part, dim=1).square_().div_(2)
            for start in range(0, len(queries), rows):
                block = slice(start, min(start + rows, len(queries)))
                found = memory[: block.stop - start, : len(part)]
                torch.addmm(half_norms, queries[block] - center, part.T, beta=-1, out=found)
                if exclude is not None:
                    _leave_out(found, exclude[block] - first)
                score, index = find_largest(found, min(k, len(part)))
                index += first
                if first:
                    score, index = torch.cat([scores[block], score], 1), torch.cat([indices[block], index], 1)
                    score, order = score.topk(k, dim=1)
                    index = index.gather(1, order)
                scores[block], indices[block] = score, index
    return indices


def find_largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and their columns, as ``topk`` gives them.

    The k largest lie in the k groups of columns with the largest maxima: one quick pass over the row finds these
    groups, and the slow search only looks into them.
    """
    width = scores.shape[1] // GROUP
    if width < 2 * k or k * GROUP > scores.shape[1] // 4:
        return scores.topk(k, dim=1)
    grouped, rest = scores[:, : width * GROUP], scores[:, width * GROUP :]
    groups = grouped.unflatten(1, (GROUP, width)).amax(1).topk(k, dim=1, sorted=False).indices
    columns = (groups[:, :, None] + width * torch.arange(GROUP, device=scores.device)).flatten(1)
    last = torch.arange(width * GROUP, scores.shape[1], device=scores.device).expand(len(scores), -1)
    values, order = torch.cat([scores.gather(1, columns), rest], 1).topk(k, dim=1)
    return values, torch.cat([columns, last], 1).gather(1, order)


def _leave_out(scores: Tensor, column: Tensor) -> None:
    """Give each row's own column the worst score, if it is in this block."""
    inside = (column >= 0) & (column < scores.shape[1])
    place = column.clamp(0, scores.shape[1] - 1)[:, None]
    scores.scatter_(1, place, torch.where(inside[:, None], -torch.inf, scores.gather(1, place)))


def _common_dtype(queries: Tensor, gallery: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(queries.dtype, gallery.dtype), torch.float32)


def _center(gallery: Tensor, dtype: torch.dtype, rows: int) -> Tensor:
    total = gallery.new_zeros(gallery.shape[1], dtype=dtype)
    for part in gallery.split(rows):
        total += part.to(dtype).sum(0)
    return total / len(gallery)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute float32 matrix products in float32, whatever the caller has chosen: no TF32, no bfloat16.

    One thread at a time: there is one choice for all threads, and each must find the one that was made outside.
    """
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    with _EXACT:
        before = [backend.fp32_precision for backend in backends]
        try:
            for backend in backends:
                backend.fp32_precision = "ieee"
            yield
        finally:
            for backend, precision in zip(backends, before, strict=True):
                backend.fp32_precision = precision
