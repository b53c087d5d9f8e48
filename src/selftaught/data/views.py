"""What the network gets to see of an image: random views to learn from, fixed ones to embed."""

from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

View = Literal["center", "squash", "random"]
BILINEAR = Image.Resampling.BILINEAR


class Views:
    """Turns an RGB image into uint8 views, each 3×size×size (or 3×resize×resize for "squash").

    - "center": short side to ``resize``, center crop of ``size``: how a finished model sees an image.
    - "squash": the whole image, squashed to ``resize``×``resize``: how neighbors for batches are found.
    - "random": two random resized crops, flipped or not, decided by ``seed`` alone: what training sees.
    """

    def __init__(self, size: int, resize: int, squash: int, crop_scale: tuple[float, float] = (0.16, 1.0)) -> None:
        self.size, self.resize, self.squash = size, resize, squash
        self._random = v2.Compose(
            [v2.RandomResizedCrop(size, scale=crop_scale), v2.RandomHorizontalFlip(), v2.PILToTensor()]
        )

    def __call__(self, image: Image.Image, view: View, seed: int = 0) -> Tensor:
        """uint8, views×3×H×W: one view, or two for "random"."""
        if view == "random":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return torch.stack([self._random(image), self._random(image)])
        if view == "squash":
            return _tensor(image.resize((self.squash, self.squash), BILINEAR))
        # The crop is taken in one step with the resize, so that a 10×30,000 strip does not become 256×768,000.
        side = min(image.size) * self.size / self.resize
        left, top = (image.width - side) / 2, (image.height - side) / 2
        return _tensor(image.resize((self.size, self.size), BILINEAR, box=(left, top, left + side, top + side)))


def view_seed(*key: int) -> int:
    """One seed from (run seed, epoch, step, position): the views of a batch depend on nothing else."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
