"""What the network gets to see of an image: random views to learn from, fixed ones to embed."""

import math
import random
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

View = Literal["center", "squash", "random"]
BILINEAR = Image.Resampling.BILINEAR
RATIOS = (3 / 4, 4 / 3)


class Views:
    """Turns an RGB image into uint8 views, each 3×size×size (or 3×squash×squash for "squash").

    - "center": short side to ``resize``, center crop of ``size``: how a finished model sees an image.
    - "squash": the whole image, squashed to ``squash``×``squash``: how neighbors for batches are found.
    - "random": two random resized crops, flipped or not, decided by ``seed`` alone: what training sees.
    """

    def __init__(self, size: int, resize: int, squash: int, crop_scale: tuple[float, float] = (0.16, 1.0)) -> None:
        self.size, self.resize, self.squash, self.crop_scale = size, resize, squash, crop_scale

    def __call__(self, image: Image.Image, view: View, seed: int = 0) -> Tensor:
        """uint8, views×3×H×W: one view, or two for "random"."""
        if view == "random":
            rng = random.Random(seed)
            return torch.stack([self._random(image, rng), self._random(image, rng)])
        if view == "squash":
            return _tensor(image.resize((self.squash, self.squash), BILINEAR))[None]
        # The crop is taken in one step with the resize, so that a 10×30,000 strip does not become 256×768,000.
        side = min(image.size) * self.size / self.resize
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
        return _tensor(image.resize((self.size, self.size), BILINEAR, box=box))[None]

    def _random(self, image: Image.Image, rng: random.Random) -> Tensor:
        view = image.crop(random_box(image.width, image.height, self.crop_scale, rng))
        view = view.resize((self.size, self.size), BILINEAR)
        return _tensor(view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else view)


def random_box(width: int, height: int, scale: tuple[float, float], rng: random.Random) -> tuple[int, int, int, int]:
    """A random crop (left, top, right, bottom), distributed as torchvision's RandomResizedCrop.

    That one draws from a global random state, which would have to be set and put back for every view.
    """
    for _ in range(10):
        area = width * height * rng.uniform(*scale)
        ratio = math.exp(rng.uniform(math.log(RATIOS[0]), math.log(RATIOS[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = rng.randint(0, width - w), rng.randint(0, height - h)
            return left, top, left + w, top + h
    # A very long image: the largest center crop of a shape that is allowed.
    w = max(1, min(width, round(height * RATIOS[1])))
    h = max(1, min(height, round(width / RATIOS[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def view_seed(*key: int) -> int:
    """One seed from (run seed, epoch, step, position): the views of a batch depend on nothing else."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
