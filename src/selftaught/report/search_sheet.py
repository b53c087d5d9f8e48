"""The results of a search as a picture: the query, its neighbors in order, and all names in full beneath."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from selftaught.report.curves import INK
from selftaught.report.sheet import Tile, above, beside, contact_sheet
from selftaught.report.text import drawable, font

COLUMNS, TILE = 5, 160
LINE = 15
"""Size of the text in the list of names."""
Neighbor = tuple[Path, float, float | None]
"""An image that was found, its distance, and the fraction of neighbors in the collection that are further apart."""


def search_sheet(found: Sequence[tuple[Path, Sequence[Neighbor]]], thumbnails: Mapping[Path, bytes]) -> Image.Image:
    """One block for each (query, neighbors), one above another.

    ``thumbnails``: small JPEGs, shown instead of files that are gone.
    """
    return above([_block(query, neighbors, thumbnails) for query, neighbors in found])


def rate(closer_than: float | None) -> str:
    """What a distance means in its collection, in words.

    Example:
        >>> rate(0.974)
        'closer than 97% of neighbors'
    """
    # At most 99: 100% would be a claim about all.
    return "" if closer_than is None else f"closer than {min(99, int(100 * closer_than))}% of neighbors"


def _block(query: Path, neighbors: Sequence[Neighbor], thumbnails: Mapping[Path, bytes]) -> Image.Image:
    tiles = [
        Tile(path, f"{rank} · {distance:.3f}", spare=thumbnails.get(path, b""))
        for rank, (path, distance, _) in enumerate(neighbors, 1)
    ]
    rows = [tiles[start : start + COLUMNS] for start in range(0, len(tiles), COLUMNS)]
    pictures = beside([contact_sheet([[Tile(query, "query", "query")]], tile=TILE), contact_sheet(rows, tile=TILE)])
    lines = [("query", "", str(query))]
    for rank, (path, distance, closer_than) in enumerate(neighbors, 1):
        lines.append((f"{rank} · {distance:.4f}", rate(closer_than), str(path)))
    face, margin, step = font(LINE), TILE // 10, round(1.5 * LINE)
    columns = [max(int(face.getlength(drawable(text))) for text in texts) + LINE for texts in zip(*lines, strict=True)]
    starts = (margin, margin + columns[0], margin + columns[0] + columns[1])
    width = max(pictures.width, starts[2] + columns[2] + margin - LINE)
    names = Image.new("RGB", (width, step * len(lines) + 2 * margin), "white")
    draw = ImageDraw.Draw(names)
    for number, line in enumerate(lines):
        for start, text in zip(starts, line, strict=True):
            draw.text((start, number * step), drawable(text), INK, face)
    return above([pictures, names])
