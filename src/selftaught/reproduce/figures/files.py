"""Figures as files: a picture and its numbers."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from selftaught.files import to_csv, write_atomically


def save_picture(path: Path, picture: Image.Image) -> None:
    write_atomically(path, lambda file: picture.save(file, "PNG"))


def save_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file; numbers with a fraction are rounded to six digits."""
    rounded = ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    write_atomically(path, to_csv([header, *rounded]))
