"""The content of the page: photos by number, and their vectors by one or more models."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path

from PIL import ExifTags, Image
from torch import Tensor

from selftaught.data import ImageFolder, Member, open_image
from selftaught.embedder import Embedder
from selftaught.errors import ImageError, SelftaughtError, UsageError, printable
from selftaught.files import as_path, plain_path
from selftaught.index import Index, locate_image, to_jpeg

PHOTO_SIDE = 1600
"""Long side of the largest picture that is sent."""
LINK_NAME = 60
"""The most characters from a photo's name in that of a link: in Unicode, each may take 4 of 255 bytes."""
SELECTION = re.compile(r"[\w][\w .-]{0,63}")
"""The name of a folder of links."""


@dataclass(frozen=True)
class Version:
    """The photos as one model sees them: the model's name on the page, and n×d vectors."""

    name: str
    embedder: Embedder
    vectors: Tensor


@dataclass(frozen=True)
class Exhibit:
    """Photos that may be shown, and nothing else: the page asks for them by number only."""

    names: tuple[str, ...]
    """Paths relative to the source folder; of several source folders, with the folder's own name."""
    paths: tuple[str, ...]
    """Paths for ``open_image``."""
    versions: tuple[Version, ...]
    small: Callable[[int], bytes] | None = None
    """Gives thumbnails that already exist."""
    real: tuple[str, ...] = field(default=(), repr=False)
    """The real path of each photo at the start: a link that is changed later is not followed."""

    def __len__(self) -> int:
        return len(self.names)

    def thumbnail(self, number: int) -> bytes:
        """A small JPEG."""
        if self.small is not None and (content := self.small(number)):
            return content
        return to_jpeg(self._open(number, 128))

    def photo(self, number: int) -> bytes:
        """A large JPEG, encoded again: no byte of the file itself is ever sent."""
        return to_jpeg(self._open(number, PHOTO_SIDE), PHOTO_SIDE)

    def date(self, number: int) -> float | None:
        """When a photo was taken by its metadata, or else when its file was changed, in seconds; None if unknown."""
        path = self.paths[number]
        try:
            with Image.open(path) as image:
                taken = str(image.getexif().get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal, ""))
            return datetime.strptime(taken, "%Y:%m:%d %H:%M:%S").timestamp()
        except Exception:  # broken metadata must not cause an error
            place = path.archive if isinstance(path, Member) else path
            return os.path.getmtime(place) if os.path.exists(place) else None  # noqa: PTH110, PTH204

    def link(self, numbers: Sequence[int], folder: Path, name: str) -> Path:
        """Make ``folder/name`` with a link to each photo; it must be new, and its name a plain word or two."""
        if not SELECTION.fullmatch(name) or name.endswith((".", " ")):
            raise UsageError("name the folder with letters, digits, spaces, dots and dashes")
        for number in numbers:
            if not os.path.exists(self.paths[number]):  # noqa: PTH110
                where = printable(self.names[number])
                raise UsageError(f"{where} is gone, or lies in a tar file: no link can lead to it")
        place = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            place.mkdir()
            for rank, number in enumerate(numbers, 1):
                base = os.path.basename(self.names[number])  # noqa: PTH119
                (place / f"{rank:05d} {base[-LINK_NAME:]}").symlink_to(plain_path(self.paths[number]))
        except FileExistsError:
            raise UsageError(f"there is a folder {printable(place)} already: choose another name") from None
        except OSError as error:
            raise SelftaughtError(f"links cannot be made in {printable(place)}: {error.strerror or error}") from None
        return place

    def _open(self, number: int, least: int) -> Image.Image:
        path = self.paths[number]
        if os.path.realpath(path) != self.real[number]:
            raise ImageError("the file is no longer where it was")
        return open_image(path, least)


def exhibit_folder(images: ImageFolder, versions: Sequence[Version]) -> Exhibit:
    """The images of a folder."""
    paths = tuple(images.paths())
    return Exhibit(images.files, paths, tuple(versions), real=_real_paths(paths))


def exhibit_index(index: Index, moved: Path | None = None) -> Exhibit:
    """The images of an index, with its thumbnails."""
    rows = index.table.column("path", "root", "vector")
    pairs = list(zip(*(map(as_path, rows[name].to_pylist()) for name in ("path", "root")), strict=True))
    paths = tuple(str(locate_image(path, root, moved)) for path, root in pairs)
    several = len({root for _, root in pairs}) > 1
    names = tuple(os.path.relpath(path, os.path.dirname(root) if several else root) for path, root in pairs)  # noqa: PTH120

    def small(number: int) -> bytes:
        """The photo's thumbnail; empty if the index has changed, and then the file is used."""
        try:
            found = index.table.take([number], "path", "thumbnail").to_pylist()
        except SelftaughtError:
            return b""
        return bytes(found[0]["thumbnail"]) if found and as_path(found[0]["path"]) == pairs[number][0] else b""

    version = Version(f"index {index.folder.name}", index.embedder, index.table.matrix(rows))
    return Exhibit(names, paths, (version,), small, _real_paths(paths))


def _real_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """The real paths; each folder is resolved only once."""
    resolve: Callable[[str], str] = cache(os.path.realpath)

    def real(path: str) -> str:
        if os.path.islink(path):  # noqa: PTH114
            return os.path.realpath(path)
        folder, name = os.path.split(path)
        return os.path.join(resolve(folder), name)  # noqa: PTH118

    return tuple(map(real, paths))
