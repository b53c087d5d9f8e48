"""Files inside tar archives, as paths that know where their bytes lie."""

import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path

from selftaught.data.tar import list_members


class Member(str):
    """The path of a file inside an archive, such as ``shards/000.tar/key.jpg``, that knows where its bytes lie."""

    __slots__ = ("archive", "offset", "size")
    archive: str
    offset: int
    size: int

    def __new__(cls, path: str, archive: str, offset: int, size: int) -> "Member":
        self = super().__new__(cls, path)
        self.archive, self.offset, self.size = archive, offset, size
        return self

    def __reduce__(self) -> tuple[type["Member"], tuple[str, str, int, int]]:
        return Member, (str.__str__(self), self.archive, self.offset, self.size)


@dataclass(frozen=True)
class TarIndex:
    """The places of many images in archives, in a few bytes each.

    ``archives``: relative to the images' folder. ``archive``: which of them holds each image, -1 for a plain file.
    """

    archives: tuple[str, ...]
    archive: "array[int]"
    offsets: "array[int]"
    sizes: "array[int]"

    def at(self, index: int, root: Path, path: str) -> str:
        """The path of an image of a folder, as a :class:`Member` unless it is a plain file."""
        number = self.archive[index]
        if number < 0:
            return path
        archive = os.path.join(root, self.archives[number])  # noqa: PTH118, a Path per image costs too much
        return Member(path, archive, self.offsets[index], self.sizes[index])

    def only(self, positions: Sequence[int]) -> "TarIndex":
        tables = (self.archive, self.offsets, self.sizes)
        return TarIndex(self.archives, *(array(table.typecode, [table[i] for i in positions]) for table in tables))

    def below(self, prefix: str) -> "TarIndex":
        """The same table for a folder further up."""
        return replace(self, archives=tuple(f"{prefix}{name}" for name in self.archives))

    def then(self, other: "TarIndex") -> "TarIndex":
        """A table of these images, followed by the others."""
        shift = len(self.archives)
        moved = (number if number < 0 else number + shift for number in other.archive)
        return TarIndex(
            self.archives + other.archives,
            array("l", chain(self.archive, moved)),
            self.offsets + other.offsets,
            self.sizes + other.sizes,
        )


def plain_files(count: int) -> TarIndex:
    """The table of ``count`` images that lie in no archive."""
    return TarIndex((), array("l", [-1]) * count, array("q", [0]) * count, array("q", [0]) * count)


def read_member(member: Member) -> bytes:
    """The bytes of a file in an archive; fewer than its size if the archive has been cut off since."""
    with open(member.archive, "rb", buffering=0) as file:  # noqa: PTH123, a Path per image costs too much
        file.seek(member.offset)
        return file.read(member.size)


def find_member(path: str) -> Member | None:
    """The file that a path through an archive leads to, if there is one."""
    name = ""
    archive = path
    while archive and not os.path.isfile(archive):  # noqa: PTH113
        archive, _, last = archive.rpartition("/")
        name = f"{last}/{name}" if name else last
    if not archive.lower().endswith(".tar"):
        return None
    status = os.stat(archive)  # noqa: PTH116
    place = _listing(archive, status.st_size, status.st_mtime_ns).get(name)
    return None if place is None else Member(path, archive, *place)


@lru_cache(maxsize=4)
def _listing(archive: str, _size: int, _changed: int) -> dict[str, tuple[int, int]]:
    return list_members(archive)
