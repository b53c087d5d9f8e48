"""The images that evenly spaced queries retrieve during training."""

from collections.abc import Sequence

import torch

from selftaught.report import Tile, beside, contact_sheet
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.figures.gallery import Gallery
from selftaught.reproduce.figures.observe import EpochResult
from selftaught.retrieval import nearest

QUERIES, TOP = 8, 3
MILESTONES = 4
"""Epochs on the picture: the first kept, the last, and some evenly between."""
TILE = 128


def milestones(epochs: Sequence[int]) -> list[int]:
    """The epochs whose retrievals are shown.

    Example:
        >>> milestones([0, 10, 20, 30, 40, 50, 60, 70, 80, 90])
        [0, 30, 60, 90]
    """
    if len(epochs) <= MILESTONES:
        return list(epochs)
    return [epochs[round(i * (len(epochs) - 1) / (MILESTONES - 1))] for i in range(MILESTONES)]


def draw_retrievals(gallery: Gallery, seen: Sequence[EpochResult]) -> Drawing:
    """The TOP nearest images of each query among all, at each milestone."""
    queries = gallery.queries(QUERIES)
    index = torch.tensor(queries)
    asked = [[Tile(gallery.paths[query], gallery.labels[query], "query")] for query in queries]
    sheets = [contact_sheet(asked, headings={0: "Query"}, tile=TILE)]
    rows: list[list[object]] = []
    files = gallery.images.files
    for result in seen:
        z = result.vectors
        if z is None:
            continue
        distances, found = nearest(z[index], z, min(TOP, len(z) - 1), exclude=index)
        tiles: list[list[Tile]] = [[] for _ in queries]
        for row, query, near, far in zip(tiles, queries, found.tolist(), distances.tolist(), strict=True):
            for rank, (i, distance) in enumerate(zip(near, far, strict=True), 1):
                right = gallery.labels[i] == gallery.labels[query]
                caption = _number(distance) if right else f"{_number(distance)} · {gallery.labels[i]}"
                row.append(Tile(gallery.paths[i], caption, "right" if right else "wrong"))
                rows.append([result.epoch, files[query], rank, files[i], distance, int(right)])
        sheets.append(contact_sheet(tiles, headings={0: result.title}, tile=TILE))
    return Drawing(beside(sheets), ["epoch", "query", "rank", "path", "distance", "same_class"], rows)


def _number(distance: float) -> str:
    """Two decimals for the usual distances; two digits for very small ones."""
    return f"{distance:.2g}" if 0 < distance < 0.01 else f"{distance:.2f}"
