"""Exact nearest neighbors in bounded memory."""

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_BYTES = 128 * 2**20
"""Memory for one block of the query × gallery scores; a few such blocks live at once."""

GALLERY_BLOCK = 65536


def full_precision(x: Tensor) -> Tensor:
    """x in float32, or in float64 if it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def nearest(
    queries: Tensor, gallery: Tensor, k: int, *, exclude: Tensor | None = None, block_bytes: int = BLOCK_BYTES
) -> tuple[Tensor, Tensor]:
    """The k nearest gallery rows of each query by Euclidean distance, nearest first.

    The full distance matrix is never held. The distances of the winners are computed from differences,
    so rows that are equal are at distance 0.

    Args:
        queries: q×d.
        gallery: n×d, on the same device.
        k: neighbors per query; at most n, or n - 1 with ``exclude``.
        exclude: for each query the one gallery row (by index) it must not retrieve: itself.
        block_bytes: memory for one block of scores.

    Returns:
        Distances and gallery indices, both q×k.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [5.0]])
        >>> distances, indices = nearest(points, points, k=1, exclude=torch.arange(3))
        >>> indices.flatten().tolist(), distances.flatten().tolist()
        ([1, 0, 1], [1.0, 1.0, 4.0])
    """
    queries, gallery = full_precision(queries), full_precision(gallery)
    distances, indices = queries.new_empty(len(queries), k), queries.new_empty(len(queries), k, dtype=torch.long)
    rows = max(1, block_bytes // max(1, 8 * k * queries.shape[1]))
    for start, found in ranked(queries, gallery, k, exclude=exclude, block_bytes=block_bytes):
        for part, index in zip(range(start, start + len(found), rows), torch.split(found, rows), strict=True):
            block = slice(part, part + len(index))
            exact = torch.linalg.vector_norm(gallery[index] - queries[block, None], dim=2)
            distances[block], order = exact.sort(dim=1, stable=True)
            indices[block] = index.gather(1, order)
    return distances, indices


def ranked(
    queries: Tensor, gallery: Tensor, k: int, *, exclude: Tensor | None = None, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, Tensor]]:
    """Blocks of queries, as (first row, indices of their k nearest gallery rows in order)."""
    available = len(gallery) - (exclude is not None)
    if not 1 <= k <= available:
        raise ValueError(f"k = {k} neighbors were asked for, but each query has {available} to choose from")
    # ‖q − g‖² = ‖q‖² − 2 q·g + ‖g‖²: the first term does not change a query's ranking. Centering
    # keeps the other two small, and so their difference accurate.
    queries, gallery = queries.detach(), gallery.detach()
    center = gallery.mean(0)
    columns = max(k + 1, min(len(gallery), GALLERY_BLOCK))
    rows = max(1, block_bytes // (columns * gallery.element_size()))
    whole = _centered(gallery, center) if len(gallery) <= columns else None
    memory = gallery.new_empty(min(rows, len(queries)), min(columns, len(gallery)))
    for start in range(0, len(queries), rows):
        block = queries[start : start + rows] - center
        best: tuple[Tensor, Tensor] | None = None
        for first in range(0, len(gallery), columns):
            part, half_norms = whole or _centered(gallery[first : first + columns], center)
            scores = memory[: len(block), : len(part)]
            torch.addmm(half_norms, block, part.T, beta=-1, out=scores)
            if exclude is not None:
                own = exclude[start : start + rows] - first
                inside = (own >= 0) & (own < len(part))
                worst = torch.where(inside, -torch.inf, scores.gather(1, own.clamp(0, len(part) - 1)[:, None])[:, 0])
                scores.scatter_(1, own.clamp(0, len(part) - 1)[:, None], worst[:, None])
            score, index = scores.topk(min(k, len(part)), dim=1)
            index += first
            if best is not None:
                score, index = torch.cat([best[0], score], 1), torch.cat([best[1], index], 1)
                score, order = score.topk(min(k, score.shape[1]), dim=1)
                index = index.gather(1, order)
            best = score, index
        assert best is not None
        yield start, best[1]


def _centered(rows: Tensor, center: Tensor) -> tuple[Tensor, Tensor]:
    """The rows around the center, and half their squared norms."""
    rows = rows - center
    return rows, rows.square().sum(1) / 2
