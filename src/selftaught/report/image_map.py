"""A map of images: each is near its point of the plane, and none covers another."""

from collections.abc import Sequence

from PIL import Image, ImageDraw
from torch import Tensor

FADE = 0.45
"""How much of the white background shows through an image that is not marked."""
REACH = 1
"""The number of cells that an image may move, in each direction, if its cell is taken."""


def draw_image_map(
    thumbnails: Sequence[Image.Image], points: Tensor, colors: Sequence[str | None], *, cells: int, cell: int
) -> tuple[Image.Image, int]:
    """Draw images at their points, on a grid, so that none covers another.

    Marked images (those with a color) come first and get a frame of that color; the others are drawn pale. An image
    is left out if its cell and the cells around it are taken.

    Args:
        thumbnails: n images, square.
        points: n×2, x to the right and y upward.
        colors: n, the color of the frame, or None.
        cells: the number of cells on a side of the square map.
        cell: side of a cell in pixels.

    Returns:
        The map, transparent where no image is, and how many of the images are on it.

    Example:
        >>> import torch
        >>> photos = [Image.new("RGB", (32, 32), color) for color in ("orange", "navy")]
        >>> draw_image_map(photos, torch.tensor([[0.0, 0.0], [1.0, 1.0]]), ["red", None], cells=4, cell=20)[1]
        2
    """
    order = sorted(range(len(points)), key=lambda i: colors[i] is None)
    places = dict(zip(order, free_cells(points[order], cells), strict=True))
    picture = Image.new("RGBA", (cells * cell, cells * cell), (255, 255, 255, 0))
    draw = ImageDraw.Draw(picture)
    for index, place in places.items():
        if place is None:
            continue
        left, top = place[0] * cell, (cells - 1 - place[1]) * cell
        color = colors[index]
        border = 1 if color is None else max(2, cell // 12)
        small = thumbnails[index].resize((cell - 2 * border,) * 2, Image.Resampling.LANCZOS)
        if color is None:
            small = Image.blend(small, Image.new("RGB", small.size, "white"), FADE)
        else:
            draw.rectangle((left, top, left + cell - 1, top + cell - 1), color)
        picture.paste(small, (left + border, top + border))
    return picture, sum(place is not None for place in places.values())


def free_cells(points: Tensor, cells: int) -> list[tuple[int, int] | None]:
    """A cell (column, row) of its own for each point, in order; None if all cells near it are taken.

    The points are stretched to fill a square of ``cells``×``cells``.

    Example:
        >>> import torch
        >>> free_cells(torch.tensor([[0.0, 0.0], [3.0, 3.0], [0.0, 0.1]]), cells=4)
        [(0, 0), (3, 3), (0, 1)]
    """
    points = points.double()
    low, high = points.amin(0), points.amax(0)
    unit = (points - low) / (high - low).clamp(min=1e-12)
    taken: set[tuple[int, int]] = set()
    found: list[tuple[int, int] | None] = []
    for x, y in (unit * cells).clamp(0, cells - 1e-6).tolist():
        column, row = int(x), int(y)
        near = [
            (c, r)
            for c in range(max(0, column - REACH), min(cells, column + REACH + 1))
            for r in range(max(0, row - REACH), min(cells, row + REACH + 1))
            if (c, r) not in taken
        ]
        best = min(near, key=lambda place: (place[0] + 0.5 - x) ** 2 + (place[1] + 0.5 - y) ** 2, default=None)
        if best is not None:
            taken.add(best)
        found.append(best)
    return found
