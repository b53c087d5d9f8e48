"""Where the rows of matrices are, when they lie one after the other in flat memory."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowLayout:
    """Where the rows of a list of matrices are, when they lie one after the other."""

    size: int
    rows: int
    matrices: int
    blocks: tuple[tuple[int, int, int, slice], ...]
    """For matrices with the same number of columns: first and last place in memory, columns, and their rows."""
    owners: Tensor
    """The matrix that each row belongs to."""
    places: Tensor
    """The rows of each matrix, matrices×most rows, padded with the number ``rows``, which is no row."""
    channel_limit: Tensor
    """1 / √columns of each matrix."""
    layer_limit: Tensor
    """1 / √(rows × columns)."""


@lru_cache(maxsize=16)
def lay_out(shapes: tuple[tuple[int, int], ...], dtype: torch.dtype, device: torch.device) -> RowLayout:
    """The layout of matrices of these (rows, columns), sorted by columns. Cached: copying to a device may wait."""
    blocks, place, row = [], 0, 0
    for columns, same in groupby(shapes, key=lambda shape: shape[1]):
        rows = sum(count for count, _ in same)
        blocks.append((place, place + rows * columns, columns, slice(row, row + rows)))
        place, row = place + rows * columns, row + rows
    counts = torch.tensor([rows for rows, _ in shapes], dtype=torch.int64)
    widths = torch.tensor([columns for _, columns in shapes], dtype=torch.float64)
    offsets = counts.cumsum(0) - counts
    within = torch.arange(max((rows for rows, _ in shapes), default=0))
    places = torch.where(within < counts[:, None], offsets[:, None] + within, row)
    return RowLayout(
        size=place,
        rows=row,
        matrices=len(shapes),
        blocks=tuple(blocks),
        owners=torch.repeat_interleave(torch.arange(len(shapes)), counts).to(device),
        places=places.to(device),
        channel_limit=widths.rsqrt().to(device, dtype),
        layer_limit=(widths * counts).rsqrt().to(device, dtype),
    )


def columns_of(p: Tensor) -> int:
    """The length of the rows of a matrix; 0 for vectors and empty tensors."""
    return p.numel() // len(p) if p.ndim > 1 and p.numel() else 0
