"""Crops of images, resized with antialiasing on the device of the pixels: one by one on a CPU, together on a GPU."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

CANVAS = 2**27
"""Pixels that are resized at once: some 2 GB of memory."""
ROUNDED = 32
"""Canvas sides are rounded up to multiples of this, so that the allocator sees few different sizes."""


Resample = Callable[[Tensor, Tensor, int, int, int], Tensor]


class Packed(NamedTuple):
    """Images of different sizes one after the other: pixel (y, x) of image i is row ``starts[i] + y·width_i + x``."""

    pixels: Tensor
    """uint8, pixels×3."""
    starts: np.ndarray
    sizes: np.ndarray
    """n×2, width and height."""

    @classmethod
    def empty(cls, sizes: np.ndarray, device: torch.device | str = "cpu", pin_memory: bool = False) -> "Packed":
        """Uninitialized memory for images of these sizes."""
        counts = sizes.prod(1)
        pixels = torch.empty(int(counts.sum()), 3, dtype=torch.uint8, device=device, pin_memory=pin_memory)
        return cls(pixels, counts.cumsum() - counts, sizes)

    def parts(self) -> Iterator[np.ndarray]:
        """The pixels of each image on the host, pixels×3."""
        flat = self.pixels.numpy()
        for start, count in zip(self.starts.tolist(), self.sizes.prod(1).tolist(), strict=True):
            yield flat[start : start + count]


def resize_crops(
    packed: Packed, which: np.ndarray, boxes: np.ndarray, flips: np.ndarray, size: int, compiled: Resample | None = None
) -> Tensor:
    """Crops, resized to size×size with the antialiasing bilinear filter of Pillow and torchvision.

    Args:
        which: the image of each of the n crops.
        boxes: n×4 integers within that image: left, top, right, bottom.
        flips: which crops to mirror.
        compiled: :func:`resample` after ``torch.compile``, for crops on a GPU.

    Returns:
        uint8 n×3×size×size on the device of the pixels.

    Example:
        >>> packed = Packed(torch.arange(12, dtype=torch.uint8).view(4, 3), np.array([0]), np.array([[2, 2]]))
        >>> whole = resize_crops(packed, np.array([0]), np.array([[0, 0, 2, 2]]), np.array([True]), 2)
        >>> whole[0, 0].tolist()
        [[3, 0], [9, 6]]
    """
    if packed.pixels.device.type == "cpu":
        return _one_by_one(packed, which, boxes, flips, size)
    across, down = (boxes[:, 2:] - boxes[:, :2]).max(0).tolist()
    at_once = max(1, CANVAS // (across * down))  # wide and tall images in one batch need a large canvas
    parts = [slice(first, first + at_once) for first in range(0, len(which), at_once)]
    views = [batched(packed, which[p], boxes[p], flips[p], size, compiled or resample) for p in parts]
    return views[0] if len(views) == 1 else torch.cat(views)


def resize_crop(pixels: Tensor, flip: bool, size: int) -> Tensor:
    """A view of a crop, uint8 height×width×3 → 3×size×size, on a CPU: torch's own kernel for 8 bits."""
    view = F.interpolate(pixels.permute(2, 0, 1)[None], (size, size), mode="bilinear", antialias=True)[0]
    return view.flip(2) if flip else view


def _one_by_one(packed: Packed, which: np.ndarray, boxes: np.ndarray, flips: np.ndarray, size: int) -> Tensor:
    # On a CPU this is faster than products with matrices that are mostly zero.
    views = torch.empty(len(which), 3, size, size, dtype=torch.uint8)
    for row, (image, box, flip) in enumerate(zip(which.tolist(), boxes.tolist(), flips.tolist(), strict=True)):
        left, top, right, bottom = box
        width, height = packed.sizes[image].tolist()
        start = int(packed.starts[image])
        pixels = packed.pixels[start : start + width * height].view(height, width, 3)
        views[row] = resize_crop(pixels[top:bottom, left:right], flip, size)
    return views


def batched(
    packed: Packed, which: np.ndarray, boxes: np.ndarray, flips: np.ndarray, size: int, resampled: Resample
) -> Tensor:
    """The crops of :func:`resize_crops` in a few large operations, on any device."""
    spans = boxes[:, 2:] - boxes[:, :2]
    across, down = (-(-int(spans[:, side].max()) // ROUNDED) * ROUNDED for side in (0, 1))
    origin = packed.starts[which] + boxes[:, 1] * packed.sizes[which, 0] + boxes[:, 0]
    rows = [origin, packed.sizes[which, 0], spans[:, 0], spans[:, 1], flips.astype(np.int64)]
    table = torch.from_numpy(np.stack(rows))
    device = packed.pixels.device
    if device.type == "cuda":
        table = table.pin_memory()
    return resampled(packed.pixels, table.to(device, non_blocking=True), across, down, size)


def resample(pixels: Tensor, table: Tensor, across: int, down: int, size: int) -> Tensor:
    """Views as weighted sums of the rows and columns of crops: two products with matrices of weights.

    Args:
        pixels: uint8, pixels×3.
        table: 5×n: a crop's first pixel, its image's width, its own width and height, and whether to mirror it.
        across, down: a canvas that every crop fits into.
    """
    device, n = pixels.device, table.shape[1]
    start, stride, width, height, flip = table.unbind()
    # Beyond a crop its last row and column are repeated; their weights are zero.
    y = torch.arange(down, device=device).minimum(height[:, None] - 1)
    x = torch.arange(across, device=device).minimum(width[:, None] - 1)
    index = (start[:, None] + y * stride[:, None])[:, :, None] + x[:, None]
    kind = torch.float16 if device.type == "cuda" else torch.float32
    canvas = pixels[index].to(kind)  # n×down×across×3; 8-bit values are exact in half precision
    rows = _weights(height, down, size, torch.zeros_like(flip)).to(kind)
    columns = _weights(width, across, size, flip).to(kind)
    view = rows @ canvas.flatten(2)  # n×size×(across·3)
    view = view.unflatten(2, (across, 3)).transpose(2, 3).reshape(n, 3 * size, across)
    view = (view @ columns.transpose(1, 2)).view(n, size, 3, size)
    rounded: Tensor = (view + 0.5).clamp(0, 255).to(torch.uint8)
    return rounded.transpose(1, 2).contiguous()  # otherwise a compiled network is compiled again for other strides


def _weights(spans: Tensor, canvas: int, size: int, flip: Tensor) -> Tensor:
    """n×size×canvas: how much each pixel of a crop's side counts in each pixel of the view; rows sum to 1."""
    scale = (spans / size)[:, None, None]
    outputs = torch.arange(size, device=spans.device)
    outputs = torch.where(flip[:, None] > 0, size - 1 - outputs, outputs)
    centers = (outputs[:, :, None] + 0.5) * scale
    pixels = torch.arange(canvas, device=spans.device)
    weights = (1 - (pixels + 0.5 - centers).abs() / scale.clamp(min=1)).clamp(min=0)
    weights = weights * (pixels < spans[:, None, None])
    return weights / weights.sum(2, keepdim=True)
