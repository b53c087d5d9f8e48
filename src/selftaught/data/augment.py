"""Changes of random views beyond cropping: on the device, for every reader, decided by a view's seed alone.

Another augmentation is one more function here, called by :func:`augment`, with its strength as a field of
:class:`~selftaught.data.views.Views` and a setting.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from selftaught.data.crop_boxes import uniforms
from selftaught.data.requests import Batch, ViewRequest

CHANGED, GRAY = 0.8, 0.2
"""The share of views that get other colors at ``color`` 1, and the share that lose them."""
BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.4, 0.4, 0.4, 0.1
"""The largest change at ``color`` 1: factors from 1 - x to 1 + x, for HUE parts of the color circle from -x to x."""
STREAM = 0xD1B54A32D192ED03
"""Makes the random numbers for colors differ from those for crops, which come from the same seeds."""
LUMA = (19595, 38470, 7471)
"""The shares of red, green and blue in the brightness of a pixel, in units of 1/65,536."""
YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
"""From red, green and blue to brightness and two axes of color."""


def augment(batch: Batch, requests: Sequence[ViewRequest], color: float) -> Batch:
    """The batch with the colors of its random views changed, ``color`` strongly; other views stay as they are."""
    if not color or not batch.positions or requests[0].view != "random":
        return batch
    count = batch.images.shape[1]
    seeds = np.array([requests[position].seed for position in batch.positions], np.uint64)
    drawn = uniforms(seeds ^ np.uint64(STREAM), 6 * count).reshape(-1, 6)
    images = change_colors(batch.images.flatten(0, 1), drawn, color)
    return batch._replace(images=images.unflatten(0, (-1, count)))


def change_colors(images: Tensor, drawn: np.ndarray, strength: float) -> Tensor:
    """Images with brightness, contrast, saturation and hue changed at random, or without color.

    Args:
        images: uint8 n×3×H×W, on any device.
        drawn: n×6 numbers within [0, 1), which alone decide on the changes.
        strength: 0 changes nothing; 1 is usual in self-supervised learning.

    All changes of an image are one affine map of its colors, so that a view does not depend on the others of its batch.
    """
    matrices, contrasts = _color_maps(drawn, strength)
    device = images.device
    weights = torch.from_numpy(matrices.astype(np.float32)).to(device, non_blocking=True)
    contrast = torch.from_numpy(contrasts.astype(np.float32)).to(device, non_blocking=True)[:, None, None]
    red, green, blue = images.to(torch.int32).unbind(1)
    luma = (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue) >> 16
    mean = luma.sum((1, 2), dtype=torch.int64, keepdim=True) / luma[0].numel()  # integer sums do not depend on order
    rows = [part.float() for part in (red, green, blue)]
    changed = []
    for channel in range(3):
        w = weights[:, channel, :, None, None]
        mixed = w[:, 0] * rows[0] + w[:, 1] * rows[1] + w[:, 2] * rows[2]
        gray = w.sum(1) * mean.float()
        changed.append(contrast * mixed + (1 - contrast) * gray)
    result: Tensor = (torch.stack(changed, 1) + 0.5).clamp(0, 255).to(torch.uint8)
    return result


def _color_maps(drawn: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """A 3×3 matrix for the colors of each image, and a factor for its contrast."""
    changed = (drawn[:, 0] < CHANGED)[:, None]
    spread = strength * np.array([BRIGHTNESS, CONTRAST, SATURATION, HUE])
    offsets = np.where(changed, (2 * drawn[:, 1:5] - 1) * spread, 0.0)
    brightness, contrast, saturation = np.maximum(0.0, 1 + offsets[:, :3]).T
    saturation = np.where(drawn[:, 5] < GRAY * min(1.0, strength), 0.0, saturation)
    angle = 2 * np.pi * offsets[:, 3]
    turn = np.zeros((len(drawn), 3, 3))
    turn[:, 0, 0] = 1
    turn[:, 1, 1] = turn[:, 2, 2] = saturation * np.cos(angle)
    turn[:, 1, 2], turn[:, 2, 1] = -saturation * np.sin(angle), saturation * np.sin(angle)
    axes = np.array(YIQ)
    return brightness[:, None, None] * (np.linalg.inv(axes) @ turn @ axes), contrast
