"""What a backbone expects of its input; it travels with the model."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """Pixels → input of a backbone.

    Args:
        size: side of the square crop the network is trained and used with.
        mean, std: per channel, in the order of ``channels``, in units of ``value_range``.
        channels: order of the color channels.
        value_range: the value of a white pixel before ``mean`` and ``std`` are applied (1 or 255).
        resize: what the short side is resized to before the center crop; by default ``size`` × 256/224.
        fixed_size: the network takes no other input size than ``size`` (vision transformers).

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

    def __post_init__(self) -> None:
        if self.size < 1 or len(self.mean) != 3 or len(self.std) != 3 or 0 in self.std or self.value_range <= 0:
            raise ValueError(f"preprocessing needs a size of at least 1 and three means and nonzero stds: {self}")
        if self.channels not in ("RGB", "BGR"):
            raise ValueError(f'channels must be "RGB" or "BGR", but are {self.channels!r}')
        # Frozen, and read back from JSON as lists.
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
        object.__setattr__(self, "resize", self.resize or round(self.size * 256 / 224))

    @property
    def squash(self) -> int:
        """Side of the squashed whole image that neighbors for batches are found with."""
        return self.size if self.fixed_size else self.resize

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 RGB n×3×H×W → normalized float32, on the images' device."""
        order = range(3) if self.channels == "RGB" else (2, 1, 0)
        scale = self.value_range / 255
        # Channel by channel with plain numbers: small tensors of them would make the host wait for a GPU.
        planes = [
            (images[:, c].float() * scale - mean) / std for c, mean, std in zip(order, self.mean, self.std, strict=True)
        ]
        return torch.stack(planes, 1)
