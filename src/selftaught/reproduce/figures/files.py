"""Figures as files: a picture and its numbers."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from selftaught.files import write_atomically


def save_picture(path: Path, picture: Image.Image) -> None:
    write_atomically(path, lambda file: picture.save(file, "PNG"))


def save_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file; numbers with a fraction are rounded to six digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    write_atomically(path, text.getvalue())


def beside(pictures: Sequence[Image.Image], gap: int = 0) -> Image.Image:
    """Pictures in a row on white, aligned at the top."""
    width = sum(picture.width for picture in pictures) + gap * (len(pictures) - 1)
    whole = Image.new("RGB", (width, max(picture.height for picture in pictures)), "white")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width + gap
    return whole


def above(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures in a column on white, aligned at the left."""
    whole = Image.new("RGB", (max(p.width for p in pictures), sum(p.height for p in pictures)), "white")
    top = 0
    for picture in pictures:
        whole.paste(picture, (0, top))
        top += picture.height
    return whole
