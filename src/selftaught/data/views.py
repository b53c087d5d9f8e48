"""What the network gets to see of an image: random views to learn from, fixed ones to embed."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from selftaught.data.crop_boxes import random_boxes
from selftaught.data.requests import View

BILINEAR = Image.Resampling.BILINEAR


class Views:
    """Turns an RGB image into uint8 views.

    - "center": short side to ``resize``, center crop of ``use_size``: how a finished model sees an image.
    - "squash": the whole image, squashed to ``squash``×``squash``: how neighbors for batches are found.
    - "random": two random crops, resized to ``size``×``size``, flipped or not, as ``seed`` alone decides: what training
      sees.
    """

    def __init__(
        self,
        size: int,
        resize: int,
        squash: int,
        crop_scale: tuple[float, float] = (0.16, 1.0),
        use_size: int | None = None,
    ) -> None:
        self.size, self.resize, self.squash, self.crop_scale = size, resize, squash, crop_scale
        self.use_size = use_size or size

    def __call__(self, image: Image.Image, view: View, seed: int = 0) -> Tensor:
        """uint8, views×3×H×W: one view, or two for "random"."""
        if view == "random":
            boxes, flips = random_boxes(np.array([image.size]), np.array([seed]), self.crop_scale)
            pairs = zip(boxes[0].tolist(), flips[0].tolist(), strict=True)
            return torch.stack([self._cut(image, box, flip) for box, flip in pairs])
        if view == "squash":
            return _tensor(image.resize((self.squash, self.squash), BILINEAR))[None]
        # The crop is taken in one step with the resize, so that a 10×30,000 strip does not become 256×768,000.
        side = min(image.size) * self.use_size / self.resize
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
        return _tensor(image.resize((self.use_size, self.use_size), BILINEAR, box=box))[None]

    def _cut(self, image: Image.Image, box: list[int], flip: bool) -> Tensor:
        left, top, right, bottom = box
        view = image.crop((left, top, right, bottom)).resize((self.size, self.size), BILINEAR)
        return _tensor(view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else view)


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
