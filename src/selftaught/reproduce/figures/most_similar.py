"""What a query is most similar to within its batch, before training and at its end."""

from collections.abc import Sequence
from pathlib import Path

from selftaught.report import Tile, contact_sheet
from selftaught.reproduce.figures.files import save_picture, save_table
from selftaught.reproduce.figures.gallery import Gallery, evenly
from selftaught.reproduce.figures.observe import Observation

QUERIES, TOP = 6, 8


def draw_most_similar(gallery: Gallery, seen: Sequence[Observation], out: Path) -> list[Path]:
    """The TOP images of the batch by contextualized similarity, for evenly spaced queries of it.

    The queries are the same before and after; the rest of the batch are their neighbors of then.
    """
    tiles: list[list[Tile]] = []
    headings: dict[int, str] = {}
    rows: list[list[object]] = []
    for observation in seen if len(seen) < 2 else (seen[0], seen[-1]):
        assert observation.lesson is not None
        headings[len(tiles)] = (
            f"{observation.title}: most similar in its batch (and how many more of its class that has)"
        )
        batch = observation.lesson.relations.ids.tolist()
        able = gallery.with_company(observation.lesson.queries) or observation.lesson.queries
        for query in (able[i] for i in evenly(QUERIES, len(able))):
            others = sum(gallery.labels[i] == gallery.labels[query] for i in batch) - 1
            row = [Tile(gallery.paths[query], f"{gallery.labels[query]} ({others})", "query")]
            for rank, (index, w) in enumerate(_nearest(observation, query), 1):
                right = gallery.labels[index] == gallery.labels[query]
                row.append(Tile(gallery.paths[index], f"{w:.2f}", "right" if right else "wrong"))
                files = gallery.images.files
                rows.append([observation.epoch, files[query], rank, files[index], w, int(right)])
            tiles.append(row)
    picture, table = out / "most-similar.png", out / "most-similar.csv"
    save_picture(picture, contact_sheet(tiles, headings=headings, tile=128))
    save_table(table, ["epoch", "query", "rank", "path", "contextualized", "same_class"], rows)
    return [picture, table]


def _nearest(observation: Observation, query: int) -> list[tuple[int, float]]:
    """The TOP other images of the batch, as (image, w)."""
    assert observation.lesson is not None
    relations = observation.lesson.relations
    own = int((relations.ids == query).nonzero()[0, 0])
    w = relations.contextualized[own].clone()
    w[own] = -1
    values, rows = w.topk(min(TOP, len(w) - 1))
    return list(zip(relations.ids[rows].tolist(), values.tolist(), strict=True))
