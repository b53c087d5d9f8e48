"""Copies of one picture: found among files, compared with each other, and made as people make them."""

import hashlib
import io
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from selftaught.data import Member, has_plain_colors, open_image, read_member, stamp
from selftaught.errors import SelftaughtError
from selftaught.files import read_file

FINGERPRINT_SIDE = 32
SHARPNESS_SIDE = 512
"""The longer side at which sharpness is measured, so that it does not depend on the number of pixels."""
LESS_SHARP = 0.4
"""A copy is blurred if its sharpness is less than this share of the sharpest one's, or else they are equally sharp.

Compressed again or marked, photos had 0.8 to 2.2 times their sharpness; enlarged from half their size, at most 0.36.
"""
GRAY = 8
"""Channels that nowhere differ by more, of 255, are gray up to compression."""


@dataclass(frozen=True)
class Picture:
    """Properties by which copies are compared. ``pixels``: a digest of the decoded picture."""

    width: int
    height: int
    bytes: int
    sharpness: float
    pixels: str
    colored: bool
    plain: bool
    """Whether it is no image with a palette, in CMYK or partly transparent."""
    changed: int = 0
    """The time of change in ns."""

    @property
    def grade(self) -> tuple[int, bool, bool]:
        """What is compared first; larger is better."""
        return self.width * self.height, self.colored, self.plain


def best_first(pictures: Mapping[int, Picture], names: Sequence[str]) -> list[int]:
    """The keys of copies of one picture, the best first: most pixels, color, plain, not blurred, most bytes, oldest.

    ``names``: the name of each key, which decides last.
    """
    sharpest: dict[tuple[int, bool, bool], float] = {}
    for seen in pictures.values():
        sharpest[seen.grade] = max(seen.sharpness, sharpest.get(seen.grade, 0))

    def order(key: int) -> tuple[object, ...]:
        seen = pictures[key]
        blurred = seen.sharpness < LESS_SHARP * sharpest[seen.grade]
        return *(-value for value in seen.grade), blurred, -seen.bytes, seen.changed, names[key]

    return sorted(pictures, key=order)


def find_same_files(paths: Sequence[str]) -> list[int]:
    """For each path the first index of a path to the same file: links give one file several names."""
    first: dict[tuple[int, int], int] = {}
    found = []
    for index, path in enumerate(paths):
        try:
            status = None if isinstance(path, Member) else os.stat(path)  # noqa: PTH116
        except OSError:
            status = None
        key = (-1, index) if status is None or not status.st_ino else (status.st_dev, status.st_ino)
        found.append(first.setdefault(key, index))
    return found


def find_same_bytes(paths: Sequence[str]) -> list[int]:
    """For each path the first index of a file with the same bytes. Only files of equal size are read.

    A file that cannot be read equals no other file.
    """
    found = list(range(len(paths)))
    sizes: dict[int, list[int]] = defaultdict(list)
    for index, path in enumerate(paths):
        sizes[stamp(path)[0]].append(index)
    for indices in sizes.values():
        first: dict[bytes, int] = {}
        for index in indices if len(indices) > 1 else ():
            path = paths[index]
            try:
                content = read_member(path) if isinstance(path, Member) else read_file(Path(path))
            except (OSError, SelftaughtError):
                continue
            found[index] = first.setdefault(hashlib.sha256(content).digest(), index)
    return found


def examine(path: str) -> Picture:
    """A picture's size, bytes, sharpness, pixels, time of change, and whether it has color and is plain.

    Raises:
        ImageError: if it cannot be read.
    """
    image = open_image(path)
    digest = hashlib.sha256(f"{image.width}×{image.height}".encode() + image.tobytes()).hexdigest()
    small = image.convert("L")
    small.thumbnail((SHARPNESS_SIDE, SHARPNESS_SIDE), Image.Resampling.BOX)
    gray = np.pad(np.asarray(small, np.float32), 1, mode="edge")
    edges = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:] - 4 * gray[1:-1, 1:-1]
    colored = np.ptp(np.asarray(image.resize((64, 64), Image.Resampling.BOX)), axis=2).max() > GRAY
    size, changed = stamp(path)
    plain = has_plain_colors(path)
    return Picture(image.width, image.height, size, float(edges.var()), digest, bool(colored), plain, changed)


def hash_picture(path: str) -> np.ndarray:
    """64 numbers, +1 or -1, that hardly change when a picture is made smaller, compressed or marked.

    A perceptual hash: whether each of the 8×8 lowest frequencies of the small gray picture is above their median.

    Raises:
        ImageError: if it cannot be read.
    """
    from scipy.fft import dctn

    gray = open_image(path, least=2 * FINGERPRINT_SIDE).convert("L")
    small = gray.resize((FINGERPRINT_SIDE, FINGERPRINT_SIDE), Image.Resampling.LANCZOS)
    low = dctn(np.asarray(small, np.float32))[:8, :8].flatten()
    return np.where(low > np.median(low), 1, -1).astype(np.float32)


def resize(image: Image.Image, scale: float = 0.5) -> Image.Image:
    size = max(1, round(scale * image.width)), max(1, round(scale * image.height))
    return image.resize(size, Image.Resampling.BICUBIC)


def recompress(image: Image.Image, quality: int = 30) -> Image.Image:
    """The image after it was saved as a JPEG file of that quality."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    with Image.open(file) as again:
        again.load()
    return again


def crop(image: Image.Image, kept: float = 0.9) -> Image.Image:
    """The middle of the image, with ``kept`` of the length of each side."""
    left, top = round((1 - kept) / 2 * image.width), round((1 - kept) / 2 * image.height)
    return image.crop((left, top, max(left + 1, image.width - left), max(top + 1, image.height - top)))


def mirror(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def watermark(image: Image.Image, text: str = "SAMPLE", opacity: float = 0.5) -> Image.Image:
    """The image with white letters across its middle, half as wide as the picture."""
    layer = Image.new("RGBA", image.size, (255, 255, 255, 0))
    font = ImageFont.load_default(max(8, image.width / 8))
    middle = image.width / 2, image.height / 2
    ImageDraw.Draw(layer).text(middle, text, (255, 255, 255, round(255 * opacity)), font, anchor="mm")
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")


ALTERATIONS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "resized": resize,
    "recompressed": recompress,
    "cropped": crop,
    "mirrored": mirror,
    "watermarked": watermark,
}
