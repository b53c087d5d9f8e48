"""Decoded images in the device's memory, as many as fit."""

from typing import NamedTuple

import numpy as np
import torch

from selftaught.data.decoded_cache import DecodedCache
from selftaught.data.device_crops import Packed

DEVICE_SHARE = 0.3
"""How much of the device's free memory decoded images may take."""


class DeviceImages(NamedTuple):
    """Images in the device's memory."""

    packed: Packed
    originals: np.ndarray
    rows: dict[str, int]


def move_to_device(cache: DecodedCache, known: dict[str, int], device: torch.device) -> DeviceImages | None:
    """Move all known images to the device, in blocks of pinned memory; None if they do not fit or one is damaged."""
    paths = [path for path, slot in known.items() if slot >= 0]
    if len(paths) < len(known):
        return None
    sizes, originals = cache.sizes([known[path] for path in paths])
    counts = sizes.prod(1)
    if 3 * int(counts.sum()) > DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
        return None
    packed = Packed.empty(sizes, device)
    block = torch.empty(max(2**25, int(counts.max())), 3, dtype=torch.uint8, pin_memory=True)
    flat, filled, begin = block.numpy(), 0, 0
    for path, count in zip(paths, counts.tolist(), strict=True):
        if filled + count > len(block):
            packed.pixels[begin : begin + filled] = block[:filled]
            begin, filled = begin + filled, 0
        if not cache.read(known[path], flat[filled : filled + count]):
            return None
        filled += count
    packed.pixels[begin : begin + filled] = block[:filled]
    return DeviceImages(packed, originals, {path: row for row, path in enumerate(paths)})
