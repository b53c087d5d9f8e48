"""The view of an image that a finished model gets: made by Pillow, or by tensor operations for exported models, with
the same pixels."""

from typing import Any

import torch
from PIL import Image
from torch import Tensor

BILINEAR = Image.Resampling.BILINEAR
FIXED_POINT = 2**22
"""Pillow holds weights as multiples of 1 / this. In float64, sums of their products with pixels are exact."""


def cut_center(image: Image.Image, size: int, resize: int) -> Image.Image:
    """Short side to ``resize``, center crop of ``size``, in one step: a 10×30,000 strip never becomes 256×768,000."""
    width, height = image.size
    side = min(width, height) * size / resize
    left, top = (width - side) / 2, (height - side) / 2
    # Columns first, then rows: Pillow 13 takes the other order for tall images, which rounds to other pixels.
    skipped = _rows_skipped(height, min(width, height), size, resize)
    rows = image.resize((size, height - 2 * skipped), BILINEAR, box=(left, skipped, left + side, height - skipped))
    return rows.resize((size, size), BILINEAR, box=(0, top - skipped, size, top - skipped + side))


def center_view(images: Tensor, size: int, resize: int) -> Tensor:
    """Like :func:`cut_center`, for any number of images of one size; can be traced for all sizes.

    Rows and columns of the view are weighted sums of those of the image: two products with matrices of weights.

    Args:
        images: uint8 n×H×W×3.

    Returns:
        float32 n×3×size×size with whole numbers from 0 to 255.

    Example:
        >>> center_view(torch.full((1, 5, 9, 3), 7, dtype=torch.uint8), 2, 4)[0, 0]
        tensor([[7., 7.],
                [7., 7.]])
    """
    height, width = images.shape[1:3]
    return cut_views(images, *view_matrices(height, width, size, resize, images.device))


def view_matrices(height: Any, width: Any, size: int, resize: int, device: torch.device) -> tuple[Tensor, ...]:
    """What :func:`cut_views` needs for images of one size: which rows and columns count, and the weights of both."""
    short = torch.sym_min(height, width)
    side = torch.scalar_tensor(short * size, dtype=torch.float64) / resize
    top, left = ((torch.scalar_tensor(length, dtype=torch.float64) - side) / 2 for length in (height, width))
    above, before = (_rows_skipped(length, short, size, resize) for length in (height, width))
    y, x = torch.arange(above, height - above), torch.arange(before, width - before)
    found = y, x, _weights(y - above, top - above, side, size), _weights(x, left, side, size)
    return tuple(part.to(device) for part in found)


def cut_views(images: Tensor, y: Tensor, x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The views of images of one size, from what :func:`view_matrices` found for that size."""
    pixels = images.index_select(1, y).index_select(2, x).permute(0, 3, 1, 2).double()
    across = torch.floor(pixels @ columns.T + 0.5)  # Pillow rounds after each of the two passes
    return torch.floor(rows @ across + 0.5).float()


def _rows_skipped(length: Any, short: Any, size: int, resize: int) -> Any:
    """The number of rows at either end that do not matter: those beyond the crop and the reach of its filter.

    Lengths are integers, or symbols for them.
    """
    return torch.sym_max(0, (length - short * size // resize - 2 * (short // resize) - 4) // 2)


def _weights(where: Tensor, margin: Tensor, side: Tensor, size: int) -> Tensor:
    """size×pixels: how much each pixel at ``where`` counts in each pixel of the view."""
    first, last = margin.float(), (margin + side).float()  # Pillow holds the borders of a box in single precision
    scale = (last - first).double() / size
    centers = first + (torch.arange(size, dtype=torch.float64) + 0.5) * scale
    weights = (1 - (where + 0.5 - centers[:, None]).abs() / scale.clamp(min=1)).clamp(min=0)
    return torch.floor(weights / weights.sum(1, keepdim=True) * FIXED_POINT + 0.5) / FIXED_POINT
