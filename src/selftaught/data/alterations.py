"""Copies of a picture like those that people make: smaller, compressed, cropped, mirrored, with a watermark."""

import io
from collections.abc import Callable

from PIL import Image, ImageDraw, ImageFont


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
