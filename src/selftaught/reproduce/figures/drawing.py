"""A figure as two files: a picture and its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from selftaught.files import to_csv, write_atomically


@dataclass(frozen=True)
class Drawing:
    """A figure: its picture, and its numbers as a table."""

    picture: Image.Image | Figure
    header: Sequence[str]
    rows: Iterable[Sequence[object]]

    def write(self, out: Path, name: str) -> list[Path]:
        """Write NAME.png and NAME.csv; numbers with a fraction are rounded to six digits."""
        picture, table = out / f"{name}.png", out / f"{name}.csv"
        save = self.picture.savefig if isinstance(self.picture, Figure) else self.picture.save
        write_atomically(picture, lambda file: save(file, format="png"))
        rounded = ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in self.rows)
        write_atomically(table, to_csv([self.header, *rounded]))
        return [picture, table]
