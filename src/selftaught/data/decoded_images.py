"""Images as the cache stores them: decoded, made smaller, and sent between processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selftaught.data.images import Stamp, open_image, stamp
from selftaught.data.requests import View, ViewRequest
from selftaught.data.views import Views
from selftaught.errors import ImageError

LONGEST = 4
"""The long side of a stored image is at most this many times the largest short side."""
DRAFT = 2
"""A JPEG may be read at a fraction of its size if that is at least this many times its stored size."""

Collated = tuple[Tensor, list[tuple[int, int, tuple[int, int], Stamp] | str]]
"""The pixels of images; height, width, original size and stamp of each, or the reason why it cannot be read."""


@dataclass(frozen=True)
class DecodedImage:
    """An image as it is stored."""

    pixels: np.ndarray
    """uint8 height×width×3."""
    original: tuple[int, int]
    """Width and height before it was made smaller."""
    stamp: Stamp
    """The file's when it was read."""


def shrink(image: Image.Image, side: int) -> Image.Image:
    """The image with a short side of at most ``side``; never enlarged, and a long strip is squeezed.

    Example:
        >>> shrink(Image.new("RGB", (400, 200)), 100).size, shrink(Image.new("RGB", (50, 9000)), 100).size
        ((200, 100), (50, 400))
    """
    scale = min(1.0, side / min(image.size))
    width, height = (min(max(1, round(length * scale)), LONGEST * side) for length in image.size)
    if (width, height) == image.size:
        return image
    return image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)


class Decoder:
    """Decodes a file for the cache: as a finished center view, or with a short side of at most ``side``."""

    def __init__(self, views: Views, side: int) -> None:
        self.views, self.side = views, side

    def kind(self, view: View) -> str:
        """Everything, besides the file, that the pixels stored for a view depend on."""
        if view == "center":
            return f"center {self.views.use_size} of {self.views.resize}"
        return f"short side {self.side}, long side at most {LONGEST} times that, drafts from {DRAFT} times that"

    def read(self, requests: Sequence[ViewRequest]) -> Collated:
        """Decoded images side by side in one tensor, for one transfer between processes."""
        results = [self(request) for request in requests]
        flat = [result.pixels.reshape(-1, 3) for result in results if not isinstance(result, str)]
        pixels = torch.from_numpy(np.concatenate(flat)) if flat else torch.empty(0, 3, dtype=torch.uint8)
        return pixels, [r if isinstance(r, str) else (*r.pixels.shape[:2], r.original, r.stamp) for r in results]

    def __call__(self, request: ViewRequest) -> DecodedImage | str:
        """The image, or the reason why it cannot be read."""
        before = stamp(request.path)
        try:
            image = open_image(request.path, None if request.view == "center" else DRAFT * self.side)
        except ImageError as error:
            return str(error)
        if request.view == "center":
            pixels = self.views(image, "center")[0].permute(1, 2, 0).numpy()
            return DecodedImage(pixels, (self.views.use_size, self.views.use_size), before)
        return DecodedImage(np.asarray(shrink(image, self.side)), image.size, before)


def split(collated: Collated) -> Iterator[DecodedImage | str]:
    """The images that :meth:`Decoder.read` has put together."""
    flat, start = collated[0].numpy(), 0
    for row in collated[1]:
        if isinstance(row, str):
            yield row
            continue
        height, width, original, read = row
        end = start + height * width
        yield DecodedImage(flat[start:end].reshape(height, width, 3), original, read)
        start = end
