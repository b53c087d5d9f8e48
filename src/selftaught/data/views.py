"""The views of an image that the network sees: random ones to learn from, fixed ones to embed."""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selftaught.data.center_view import cut_center
from selftaught.data.crop_boxes import Shape, random_boxes
from selftaught.data.device_crops import resize_crop
from selftaught.data.requests import View


@dataclass(frozen=True)
class Views:
    """How uint8 views are made of RGB images.

    - "center": short side to ``resize``, center crop of ``use_size``: how a finished model sees an image.
    - "squash": the whole image, squashed to ``squash``×``squash``: how neighbors for batches are found.
    - "random": two random crops of ``crop_scale`` and ``crop_shape``, resized to ``size``×``size``, flipped or not, all
      decided by the seed: what training sees. A reader also changes their colors, ``color`` strongly.
    """

    size: int
    resize: int
    squash: int
    crop_scale: tuple[float, float] = (0.16, 1.0)
    use_size: int = 0
    """0 means the same as ``size``."""
    crop_shape: Shape = "random"
    color: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "use_size", self.use_size or self.size)

    def __call__(self, image: Image.Image, view: View, seed: int = 0) -> Tensor:
        """uint8, views×3×H×W: one view, or two for "random"."""
        if view == "center":
            return _pixels(cut_center(image, self.use_size, self.resize)).permute(2, 0, 1)[None]
        boxes, flips, size = self.cuts(view, np.array([image.size]), np.array([seed]))
        rows = zip(boxes[0].tolist(), flips[0].tolist(), strict=True)
        return torch.stack([resize_crop(_pixels(image.crop(tuple(box))), flip, size) for box, flip in rows])

    def cuts(self, view: View, sizes: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """The places of the views in images, from their sizes (n×2, width and height) and seeds.

        For "center", images must be finished views already, as :meth:`__call__` makes them.

        Returns:
            n×views×4 integers (left, top, right, bottom), n×views flips, and the height and width of a view.
        """
        if view == "random":
            return *random_boxes(sizes, seeds, self.crop_scale, shape=self.crop_shape), self.size
        size = self.use_size if view == "center" else self.squash
        whole = np.concatenate([np.zeros_like(sizes), sizes], 1)[:, None]
        return whole, np.zeros((len(sizes), 1), bool), size


def _pixels(image: Image.Image) -> Tensor:
    """uint8 height×width×3."""
    return torch.from_numpy(np.array(image))
