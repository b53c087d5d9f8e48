"""An index in a folder: made, opened, searched."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from selftaught.embedder import Embedder
from selftaught.encoding import ImageLike
from selftaught.errors import SelftaughtError, UsageError, counted, printable
from selftaught.files import lock_folder, new_folder
from selftaught.index.scale import Scale, scale_of_table
from selftaught.index.table import About, ImageTable, create_table, is_index, open_table
from selftaught.model_files import DESCRIPTION, write_model

MODEL = "model"


class Hit(NamedTuple):
    """An image that was found."""

    path: Path
    distance: float
    closer_than: float | None
    """The fraction of neighbors within the collection that are further apart than this image and the query."""


class Index:
    """A collection of images that stays open, with its model: ``index.search(images, k)``.

    The next search sees what other processes have written into the index.
    """

    def __init__(self, table: ImageTable, embedder: Embedder) -> None:
        self.table, self.embedder = table, embedder
        self._scale: tuple[int, Scale] | None = None

    @property
    def folder(self) -> Path:
        return self.table.folder

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, {counted(len(self), 'image')}, {self.embedder.description['backbone']})"

    def search(
        self, images: Sequence[ImageLike], k: int = 10, *, exact: bool = False, root: Path | None = None
    ) -> list[list[Hit]]:
        """The k nearest images of each query, nearest first; a query that is itself in the index finds itself.

        Args:
            images: paths, Pillow images or arrays.
            exact: compare every vector, even if the index is large enough for an approximate search.
            root: where the photos are now, if they have moved.
        """
        return self.search_vectors(self.embedder.encode(images), k, exact=exact, root=root)

    def search_vectors(
        self, vectors: Tensor, k: int = 10, *, exact: bool = False, root: Path | None = None
    ) -> list[list[Hit]]:
        """The same for queries that the index's model has embedded, q×dim."""
        if k < 1:
            raise ValueError(f"k must be at least 1, but is {k}")
        self.table.refresh()
        try:
            found = self.table.nearest(vectors, k, exact=exact)
        except SelftaughtError:  # another process has just replaced its files
            self.table.refresh()
            found = self.table.nearest(vectors, k, exact=exact)
        scale = self.scale()
        return [[Hit(locate_image(p, r, root), d, scale.closer_than(d)) for p, r, d in near] for near in found]

    def thumbnails(self, paths: Sequence[Path]) -> dict[Path, bytes]:
        """Small JPEGs of images that were found, as far as the index has them."""
        return {Path(path): small for path, small in self.table.thumbnails(list(map(str, paths))).items()}

    def check_model(self, embedder: Embedder, *, to_search: bool = False) -> None:
        """Raise an error unless the index holds this very model's vectors; ``to_search``: in Python."""
        if self.table.about.model != embedder.identity:
            instead = "give what it was made with, or another index"
            if to_search:
                instead = f'open_index("{printable(self.folder)}") searches it with its own model'
            raise UsageError(
                f"the index {printable(self.folder)} holds vectors of another model, or of another --size, --mirror, "
                f"--scales or --whiten, which cannot be compared with these: {instead}"
            )

    def scale(self) -> Scale:
        """The scale that ranks a distance among those between neighbors of the index."""
        if self._scale is None or self._scale[0] != self.table.version:
            self._scale = self.table.version, scale_of_table(self.table)
        return self._scale[1]


def open_index(folder: str | os.PathLike[str], device: str = "auto", *, embedder: Embedder | None = None) -> Index:
    """Open an index for searching; the model it was made with is inside.

    Args:
        embedder: that model, if it is loaded already or has a backbone of your own.
    """
    table, is_given = open_table(folder), embedder is not None
    if embedder is None:
        if not (table.folder / MODEL / DESCRIPTION).is_file():
            where = printable(table.folder)
            raise UsageError(f"the index {where} is not finished: give the command that makes it once more")
        embedder = Embedder.load(table.folder / MODEL, device)
    opened = Index(table, embedder)
    opened.check_model(embedder, to_search=is_given)
    return opened


def make_index(folder: str | os.PathLike[str], embedder: Embedder) -> Index:
    """The index in a folder, made empty if there is none; raises an error if it is of another model."""
    place = Path(folder)
    if not _is_begun(place) and not is_index(place):
        new_folder(place, "the folder", "give another --out")
    with lock_folder(place):  # two processes cannot make it at once
        if is_index(place):
            table = open_table(place)
            Index(table, embedder).check_model(embedder)
        else:
            table = create_table(place, About(embedder.identity, embedder.dim, embedder.metric))
        if not (place / MODEL / DESCRIPTION).is_file():
            write_model(place / MODEL, embedder.network, embedder.description)
    return Index(table, embedder)


def locate_image(path: str, root: str, moved: Path | None) -> Path:
    """The place of an image: its path, or if it is gone, the same place in ``moved``, the new folder of the photos."""
    here = Path(path)
    if moved is None or here.exists():
        return here
    there = moved / os.path.relpath(path, root)
    return there if there.exists() else here


def _is_begun(folder: Path) -> bool:
    """Whether a folder holds nothing but the traces of an index whose making was killed early."""
    return folder.is_dir() and {entry.name for entry in folder.iterdir()} <= {"images.lance", ".lock"}
