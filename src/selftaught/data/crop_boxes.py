"""Which part of an image a view shows: boxes drawn from seeds, for many images at once."""

import math
from typing import Literal

import numpy as np

Shape = Literal["random", "image"]
RATIOS = (3 / 4, 4 / 3)
TRIES = 10


def random_boxes(
    sizes: np.ndarray, seeds: np.ndarray, scale: tuple[float, float], shape: Shape = "random"
) -> tuple[np.ndarray, np.ndarray]:
    """Two random crops per image, distributed as those of torchvision's RandomResizedCrop, which draws one at a time.

    Args:
        sizes: n×2, width and height of each image.
        seeds: n integers; an image's crops depend on its seed and its size alone.
        scale: the range of a crop's area, as fractions of the image's area.
        shape: the shape of the crops: "random", as torchvision draws it, or that of the "image".

    Returns:
        n×2×4 integers (left, top, right, bottom), and n×2 flips.

    Example:
        >>> boxes, flips = random_boxes(np.array([[100, 60]]), np.array([7]), (0.16, 1.0))
        >>> boxes.shape, flips.shape
        ((1, 2, 4), (1, 2))
    """
    n = len(sizes)
    u = uniforms(seeds, 2 * (4 * TRIES + 1)).reshape(n, 2, 4 * TRIES + 1)
    tries = u[:, :, 1:].reshape(n, 2, TRIES, 4)
    width, height = (sizes[:, side, None, None].astype(np.float64) for side in (0, 1))
    area = width * height * (scale[0] + (scale[1] - scale[0]) * tries[..., 0])
    low, high = math.log(RATIOS[0]), math.log(RATIOS[1])
    ratio = np.exp(low + (high - low) * tries[..., 1]) if shape == "random" else width / height
    w, h = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.argmax(2)[..., None]
    w, h, x, y = (np.take_along_axis(a, first, 2)[..., 0] for a in (w, h, tries[..., 2], tries[..., 3]))
    # If a drawn shape does not fit into a very long image: the largest center crop of an allowed shape.
    none, width, height = ~fits.any(2), width[..., 0], height[..., 0]
    w = np.where(none, np.maximum(1, np.minimum(width, np.rint(height * RATIOS[1]))), w)
    h = np.where(none, np.maximum(1, np.minimum(height, np.rint(width / RATIOS[0]))), h)
    left = np.where(none, (width - w) // 2, np.floor(x * (width - w + 1)))
    top = np.where(none, (height - h) // 2, np.floor(y * (height - h + 1)))
    boxes = np.stack([left, top, left + w, top + h], 2).astype(np.int64)
    return boxes, u[:, :, 0] < 0.5


def scale_boxes(boxes: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Boxes (n×views×4) scaled to the same images at another size, at least one pixel wide and high.

    ``before``, ``after``: n×2, width and height.

    Example:
        >>> scale_boxes(np.array([[[10, 20, 30, 21]]]), np.array([[100, 60]]), np.array([[50, 30]])).tolist()
        [[[5, 10, 15, 11]]]
    """
    scaled = np.rint(boxes * np.tile(after / before, 2)[:, None]).astype(np.int64)
    first = np.minimum(scaled[:, :, :2], after[:, None] - 1)
    return np.concatenate([first, np.maximum(scaled[:, :, 2:], first + 1)], 2)


def uniforms(seeds: np.ndarray, count: int) -> np.ndarray:
    """n×count numbers within [0, 1), each row from its seed: SplitMix64, for many seeds at once.

    A generator object for each image would take longer than the rest of choosing its crops.
    """
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = np.asarray(seeds).astype(np.uint64)[:, None] + steps
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    uniform: np.ndarray = (z >> np.uint64(11)) * 2.0**-53
    return uniform


def view_seed(*key: int) -> int:
    """One seed from (run seed, epoch, step, position): the views of a batch depend on nothing else."""
    return view_seeds(1, *key)[0]


def view_seeds(count: int, *key: int) -> list[int]:
    """``count`` seeds from one key, much faster than one by one."""
    return [int(word) for word in np.random.SeedSequence(key).generate_state(count, np.uint64) >> np.uint64(1)]
