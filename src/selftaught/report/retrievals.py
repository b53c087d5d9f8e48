"""The neighbors of queries, as rows of a contact sheet."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from selftaught.report.sheet import Tile


def retrieval_rows(
    paths: Sequence[Path],
    labels: Sequence[str] | None,
    indices: Tensor,
    distances: Tensor,
    queries: Sequence[int],
) -> list[list[Tile]]:
    """One row per query: its image, then its neighbors with their distances, nearest first.

    With labels, a neighbor of the query's class is framed as right and any other as wrong, its class beside
    its distance. Draw the same queries with the neighbors from before and after training to see what was learned.

    Args:
        paths: n images.
        labels: n class names, or None if there are none.
        indices: q×k, the neighbors of each query as indices into ``paths``.
        distances: q×k.
        queries: q indices into ``paths``.

    Example:
        >>> import torch
        >>> photos = [Path("cat1.jpg"), Path("cat2.jpg"), Path("dog.jpg")]
        >>> near = torch.tensor([[1, 2]]), torch.tensor([[0.1, 0.7]])
        >>> [tile.caption for tile in retrieval_rows(photos, ["cat", "cat", "dog"], *near, queries=[0])[0]]
        ['cat', '0.10', '0.70 · dog']
    """
    if indices.is_floating_point():
        raise ValueError("indices must be whole numbers: were indices and distances exchanged?")
    if indices.shape != distances.shape or indices.ndim != 2 or len(indices) != len(queries):
        raise ValueError(
            f"indices and distances must be q×k with q = {len(queries)} queries, "
            f"but they are {tuple(indices.shape)} and {tuple(distances.shape)}"
        )
    rows = []
    for query, near, far in zip(queries, indices.tolist(), distances.tolist(), strict=True):
        row = [Tile(paths[query], labels[query] if labels else paths[query].name, "query")]
        for index, distance in zip(near, far, strict=True):
            if labels is None:
                row.append(Tile(paths[index], _number(distance)))
            elif labels[index] == labels[query]:
                row.append(Tile(paths[index], _number(distance), "right"))
            else:
                row.append(Tile(paths[index], f"{_number(distance)} · {labels[index]}", "wrong"))
        rows.append(row)
    return rows


def _number(distance: float) -> str:
    """Two decimals for the usual distances; two digits for very small ones."""
    return f"{distance:.2g}" if 0 < distance < 0.01 else f"{distance:.2f}"
