"""Contact sheets: rows of images with frames and captions on white paper."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw

from selftaught.data import open_image, to_rgb
from selftaught.errors import ImageError
from selftaught.report.curves import FAINT
from selftaught.report.text import font, shorten, text_line

Frame = Literal["plain", "query", "right", "wrong"]

MAT = "#f3f4f6"
"""The color around an image that does not fill its square tile."""
FRAME_COLORS: Mapping[Frame, str] = {"plain": "#d0d7de", "query": "#1f4e9c", "right": "#1a7f37", "wrong": "#cf222e"}
MARKS: Mapping[Frame, tuple[tuple[tuple[float, float], ...], ...]] = {
    "right": (((0.28, 0.52), (0.44, 0.68), (0.73, 0.34)),),
    "wrong": (((0.32, 0.32), (0.68, 0.68)), ((0.32, 0.68), (0.68, 0.32))),
}
"""The strokes of the check and the cross, within a unit square."""


@dataclass(frozen=True)
class Tile:
    """One image of a sheet."""

    image: Path | Image.Image
    caption: str = ""
    frame: Frame = "plain"
    spare: bytes = b""
    """A small JPEG, shown if the image cannot be read."""


def contact_sheet(
    rows: Sequence[Sequence[Tile]], *, headings: Mapping[int, str] | None = None, tile: int = 160
) -> Image.Image:
    """Rows of square tiles, each image whole inside its frame, with a one-line caption beneath.

    A right frame is green with a check mark, a wrong one red with a cross. An image that cannot be
    read, and has no spare, becomes a gray tile that says so.

    Args:
        rows: the tiles, row by row; rows may differ in length.
        headings: a line of text above the row of that index.
        tile: side of a tile in pixels, its frame included.
    """
    headings = headings or {}
    gap, caption, heading = tile // 10, font(max(9, tile // 12)), font(max(11, tile // 9), bold=True)
    caption_height = sum(caption.getmetrics()) + tile // 32
    lefts, right = _columns(rows, tile, gap)
    for text in headings.values():  # a long heading may widen a narrow sheet
        right = max(right, ceil(heading.getlength(shorten(text, heading, 6 * tile))))
    width = right + 2 * gap

    tops, bottom = [], gap
    for index in range(len(rows)):
        if index in headings:
            bottom += (gap if index else 0) + sum(heading.getmetrics()) + gap // 2
        tops.append(bottom)
        bottom += tile + caption_height + gap
    sheet = Image.new("RGB", (width, max(bottom, 2 * gap)), "white")
    for index, (row, top) in enumerate(zip(rows, tops, strict=True)):
        if index in headings:
            title = text_line(headings[index], heading, width - 2 * gap)
            sheet.paste(title, (gap, top - gap // 2 - title.height))
        for left, item in zip(lefts, row, strict=False):
            sheet.paste(_framed(item, tile), (gap + left, top))
            under = text_line(item.caption, caption, tile, centered=True)
            sheet.paste(under, (gap + left, top + tile + tile // 32))
    return sheet


def _columns(rows: Sequence[Sequence[Tile]], tile: int, gap: int) -> tuple[list[int], int]:
    """The left edge of each column and the right edge of the last; a column of queries stands a little apart."""
    lefts, right = [0], tile
    for column in range(1, max(map(len, rows), default=0)):
        after_query = any(len(row) >= column and row[column - 1].frame == "query" for row in rows)
        lefts.append(right + (2 * gap if after_query else gap))
        right = lefts[-1] + tile
    return lefts, right


def _framed(item: Tile, side: int) -> Image.Image:
    border = max(2, side // 32)
    square = Image.new("RGB", (side, side), FRAME_COLORS[item.frame])
    square.paste(fit_image(item.image, side - 2 * border, item.spare), (border, border))
    if item.frame in MARKS:
        badge = _badge(item.frame, side // 6)
        square.paste(badge, (side - 2 * border - badge.width, 2 * border), badge)
    return square


def fit_image(image: Path | Image.Image | bytes, side: int, spare: bytes = b"") -> Image.Image:
    """The whole image, or else the spare one, as large as the square allows, on a mat."""
    try:
        content = Image.open(io.BytesIO(image)) if isinstance(image, bytes) else image
        picture = open_image(content) if isinstance(content, Path) else to_rgb(content)
        scale = side / max(picture.size)
    except (ImageError, OSError, ZeroDivisionError):  # a Pillow image may be empty, or not loaded yet
        if spare:
            return fit_image(spare, side)
        square = Image.new("RGB", (side, side), FAINT)
        ImageDraw.Draw(square).text((side / 2, side / 2), "unreadable", "white", font(side // 8), anchor="mm")
        return square
    square = Image.new("RGB", (side, side), MAT)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    picture = picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=3)
    square.paste(picture, ((side - size[0]) // 2, (side - size[1]) // 2))
    return square


def _badge(frame: Frame, side: int) -> Image.Image:
    """A disk with a check or a cross, drawn large and reduced for smooth edges."""
    large = 8 * side
    badge = Image.new("RGBA", (large, large), (255, 255, 255, 0))
    draw = ImageDraw.Draw(badge)
    draw.ellipse((0, 0, large - 1, large - 1), FRAME_COLORS[frame], "white", large // 14)
    for stroke in MARKS[frame]:
        points = [(x * large, y * large) for x, y in stroke]
        draw.line(points, "white", large // 9, joint="curve")
    return badge.resize((side, side), Image.Resampling.LANCZOS)


def beside(pictures: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    """Pictures in a row on white, aligned at the top."""
    width = sum(picture.width for picture in pictures) + gap * (len(pictures) - 1)
    whole = Image.new("RGB", (width, max(picture.height for picture in pictures)), "white")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width + gap
    return whole


def above(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures in a column on white, aligned at the left."""
    whole = Image.new("RGB", (max(p.width for p in pictures), sum(p.height for p in pictures)), "white")
    top = 0
    for picture in pictures:
        whole.paste(picture, (0, top))
        top += picture.height
    return whole
