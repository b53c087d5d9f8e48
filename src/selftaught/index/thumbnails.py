"""Small JPEGs of images."""

import io
import os

from PIL import Image

from selftaught.data import open_image
from selftaught.errors import ImageError

SIDE = 128


def thumbnail(path: str | os.PathLike[str]) -> bytes:
    """An image with a long side of 128 pixels at most, as JPEG; empty if it cannot be read."""
    try:
        return to_jpeg(open_image(path, least=SIDE))
    except ImageError:
        return b""


def to_jpeg(image: Image.Image, side: int = SIDE) -> bytes:
    """An RGB image with a long side of at most ``side``, as JPEG."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2)
    content = io.BytesIO()
    small.save(content, "JPEG", quality=80)
    return content.getvalue()
