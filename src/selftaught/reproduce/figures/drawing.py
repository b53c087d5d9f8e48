"""A figure as two files: a picture and its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from PIL import ExifTags, Image

from selftaught.files import check_output, to_csv, write_atomically
from selftaught.reproduce.figures.relations import NAMES

OWN_PICTURE, OWN_TABLE = b"selftaught figures\0", rf"\A[a-z_,]+,({NAMES[-1]}|same_class|y_after)\n".encode()
"""What the files of a figure are recognized by."""


def check_files(out: Path, name: str) -> None:
    """Raise an error, before the work begins, if the files of a figure would replace foreign ones."""
    check_output(out / f"{name}.png", OWN_PICTURE)
    check_output(out / f"{name}.csv", OWN_TABLE)


@dataclass(frozen=True)
class Drawing:
    """A figure: its picture, and its numbers as a table."""

    picture: Image.Image | Figure
    header: Sequence[str]
    rows: Iterable[Sequence[object]]

    def write(self, out: Path, name: str) -> list[Path]:
        """Write NAME.png and NAME.csv; numbers with a fraction are rounded to six digits."""
        picture, table = out / f"{name}.png", out / f"{name}.csv"
        exif = Image.Exif()
        exif[ExifTags.Base.Software] = "selftaught figures"
        if isinstance(self.picture, Figure):
            save = partial(self.picture.savefig, pil_kwargs={"exif": exif})
        else:
            save = partial(self.picture.save, exif=exif)
        write_atomically(picture, lambda file: save(file, format="png"))
        rounded = ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in self.rows)
        write_atomically(table, to_csv([self.header, *rounded]))
        return [picture, table]
