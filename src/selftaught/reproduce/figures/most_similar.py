"""The images most similar to a query within its batch, before training and at its end."""

from collections.abc import Sequence

from selftaught.report import Tile, contact_sheet
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.figures.gallery import Gallery, evenly
from selftaught.reproduce.figures.observe import EpochResult

QUERIES, TOP = 6, 8


def draw_most_similar(gallery: Gallery, seen: Sequence[EpochResult]) -> Drawing:
    """The TOP images of the batch by contextualized similarity, for evenly spaced queries of it.

    The queries are the same before and after; the rest of the batch are their neighbors at that time.
    """
    tiles: list[list[Tile]] = []
    headings: dict[int, str] = {}
    rows: list[list[object]] = []
    for result in seen if len(seen) < 2 else (seen[0], seen[-1]):
        assert result.similarities is not None
        headings[len(tiles)] = f"{result.title}: most similar in its batch (and how many more of its class that has)"
        batch = result.similarities.relations.ids.tolist()
        able = gallery.with_company(result.similarities.queries) or result.similarities.queries
        for query in (able[i] for i in evenly(QUERIES, len(able))):
            others = sum(gallery.labels[i] == gallery.labels[query] for i in batch) - 1
            row = [Tile(gallery.paths[query], f"{gallery.labels[query]} ({others})", "query")]
            for rank, (index, w) in enumerate(_nearest(result, query), 1):
                right = gallery.labels[index] == gallery.labels[query]
                row.append(Tile(gallery.paths[index], f"{w:.2f}", "right" if right else "wrong"))
                files = gallery.images.files
                rows.append([result.epoch, files[query], rank, files[index], w, int(right)])
            tiles.append(row)
    picture = contact_sheet(tiles, headings=headings, tile=128)
    return Drawing(picture, ["epoch", "query", "rank", "path", "contextualized", "same_class"], rows)


def _nearest(result: EpochResult, query: int) -> list[tuple[int, float]]:
    """The TOP other images of the batch, as (image, w)."""
    assert result.similarities is not None
    relations = result.similarities.relations
    own = int((relations.ids == query).nonzero()[0, 0])
    w = relations.contextualized[own].clone()
    w[own] = -1
    values, rows = w.topk(min(TOP, len(w) - 1))
    return list(zip(relations.ids[rows].tolist(), values.tolist(), strict=True))
