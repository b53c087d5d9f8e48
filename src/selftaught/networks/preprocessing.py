"""The input that a backbone expects; it is saved with the model."""

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
LARGEST_SIZE = 2048
"""The largest size at use: memory grows with its square."""


@dataclass(frozen=True)
class Preprocessing:
    """Pixels → input of a backbone.

    Args:
        size: side of the square crop the network is trained with.
        mean, std: per channel, in the order of ``channels``, in units of ``value_range``.
        channels: order of the color channels.
        value_range: the value of a white pixel before ``mean`` and ``std`` are applied (1 or 255).
        resize: length of the short side before a center crop of ``size``; by default ``size`` × 256/224.
        fixed_size: the network takes no other input size than ``size``.
        multiple: the network takes only sizes that are multiples of this (the patches of vision transformers).
        use_size: side of the center crop a finished model sees; by default ``size``. Random crops make things look
            larger than they are, so a network trained with them does better at a larger size.

    Example:
        >>> Preprocessing(size=227, mean=(104, 117, 128), std=(1, 1, 1), channels="BGR", value_range=255).resize
        259
    """

    size: int = 224
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    channels: Literal["RGB", "BGR"] = "RGB"
    value_range: float = 1.0
    resize: int = 0
    fixed_size: bool = False
    use_size: int = 0
    multiple: int = 1

    def __post_init__(self) -> None:
        numbers = (*self.mean, *self.std, self.value_range)
        good = len(self.mean) == len(self.std) == 3 and 0 not in self.std and all(map(math.isfinite, numbers))
        sizes = (self.size, self.resize, self.use_size, self.multiple)
        good = good and all(isinstance(size, Integral) and size >= 0 for size in sizes)
        if self.size < 1 or self.multiple < 1 or self.value_range <= 0 or not good:
            raise ValueError(f"preprocessing needs whole sizes of at least 1 and three means and nonzero stds: {self}")
        if self.channels not in ("RGB", "BGR"):
            raise ValueError(f'channels must be "RGB" or "BGR", but are {self.channels!r}')
        # The fields are frozen, and lists when read back from JSON.
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
        object.__setattr__(self, "resize", self.resize or round(self.size * 256 / 224))
        object.__setattr__(self, "use_size", self.use_size or self.size)
        if self.use_size > LARGEST_SIZE:
            raise ValueError(f"images cannot be used at {self.use_size} pixels: give at most {LARGEST_SIZE}")
        if self.fixed_size and self.use_size != self.size:
            raise ValueError(
                f"the network takes images of {self.size} pixels only, so it cannot be used at another size"
            )
        if self.use_size % self.multiple:
            low = self.use_size // self.multiple * self.multiple
            near = f"{low} or {low + self.multiple}" if low else str(self.multiple)
            raise ValueError(
                f"the network takes images of {near} pixels, not of {self.use_size}: give a multiple of {self.multiple}"
            )

    @property
    def squash(self) -> int:
        """Side of the squashed whole image by which neighbors for batches are found."""
        return self.size if self.fixed_size else self.fit(self.resize)

    @property
    def use_resize(self) -> int:
        """Length of the short side before the center crop of ``use_size``."""
        return max(1, round(self.resize * self.use_size / self.size))

    def fit(self, size: float) -> int:
        """The size nearest to this one that the network takes."""
        return self.multiple * max(1, round(size / self.multiple))

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 RGB n×3×H×W → normalized float32, on the images' device."""
        order = range(3) if self.channels == "RGB" else (2, 1, 0)
        scale = self.value_range / 255
        # Channel by channel with plain numbers: copying small tensors would make the host wait for a GPU.
        planes = [
            (images[:, c].float() * scale - mean) / std for c, mean, std in zip(order, self.mean, self.std, strict=True)
        ]
        return torch.stack(planes, 1)
