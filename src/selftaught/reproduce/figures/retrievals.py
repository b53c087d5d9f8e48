"""The images nearest to a query: among all images during training, and within its batch before and after."""

from collections.abc import Iterable, Sequence

import torch

from selftaught.report import Tile, beside, contact_sheet
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.figures.labeled_images import LabeledImages, pick_middles
from selftaught.reproduce.figures.observe import EpochResult
from selftaught.retrieval import nearest

TILE = 128
Line = list[object]


def draw_retrievals(labeled: LabeledImages, seen: Sequence[EpochResult]) -> Drawing:
    """The 3 nearest images of each of 8 evenly spaced queries among all, at each milestone."""
    queries = labeled.queries(8)
    index = torch.tensor(queries)
    asked = [[Tile(labeled.paths[query], labeled.labels[query], "query")] for query in queries]
    sheets = [contact_sheet(asked, headings={0: "Query"}, tile=TILE)]
    rows: list[Line] = []
    for result in seen:
        z = result.vectors
        if z is None:
            continue
        distances, found = nearest(z[index], z, min(3, len(z) - 1), exclude=index)
        tiles = []
        for query, near, far in zip(queries, found.tolist(), distances.tolist(), strict=True):
            shown, noted = _ranked(labeled, result.epoch, query, zip(near, far, strict=True), name_wrong=True)
            tiles.append(shown)
            rows += noted
        sheets.append(contact_sheet(tiles, headings={0: result.title}, tile=TILE))
    return Drawing(beside(sheets), ["epoch", "query", "rank", "path", "distance", "same_class"], rows)


def draw_most_similar(labeled: LabeledImages, seen: Sequence[EpochResult]) -> Drawing:
    """The 8 images of a batch most similar to each of 6 evenly spaced queries of it, before training and at its end.

    The queries are the same before and after; the rest of the batch are their neighbors at that time.
    """
    tiles: list[list[Tile]] = []
    headings: dict[int, str] = {}
    rows: list[Line] = []
    for result in seen if len(seen) < 2 else (seen[0], seen[-1]):
        assert result.similarities is not None
        headings[len(tiles)] = f"{result.title}: most similar in its batch (and how many more of its class that has)"
        relations = result.similarities.relations
        able = labeled.with_company(result.similarities.queries) or result.similarities.queries
        for query in (able[i] for i in pick_middles(6, len(able))):
            own = int((relations.ids == query).nonzero()[0, 0])
            w = relations.w[-1, own].clone()
            w[own] = -1
            values, places = w.topk(min(8, len(w) - 1))
            near = zip(relations.ids[places].tolist(), values.tolist(), strict=True)
            others = sum(labeled.labels[i] == labeled.labels[query] for i in relations.ids.tolist()) - 1
            shown, noted = _ranked(labeled, result.epoch, query, near)
            tiles.append([Tile(labeled.paths[query], f"{labeled.labels[query]} ({others})", "query"), *shown])
            rows += noted
    picture = contact_sheet(tiles, headings=headings, tile=TILE)
    return Drawing(picture, ["epoch", "query", "rank", "path", "contextualized", "same_class"], rows)


def _ranked(
    labeled: LabeledImages, epoch: int, query: int, near: Iterable[tuple[int, float]], *, name_wrong: bool = False
) -> tuple[list[Tile], list[Line]]:
    """The tiles and the table rows of images with their distance or similarity, the nearest first."""
    tiles, rows = [], []
    for rank, (image, value) in enumerate(near, 1):
        right = labeled.labels[image] == labeled.labels[query]
        number = f"{value:.2g}" if 0 < value < 0.01 else f"{value:.2f}"
        caption = f"{number} · {labeled.labels[image]}" if name_wrong and not right else number
        tiles.append(Tile(labeled.paths[image], caption, "right" if right else "wrong"))
        files = labeled.images.files
        rows.append([epoch, files[query], rank, files[image], value, int(right)])
    return tiles, rows
