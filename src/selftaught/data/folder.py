"""A folder with any subfolders as a list of images; class folders as labels."""

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from selftaught.data.images import EXTENSIONS, PHOTOS, can_be_read
from selftaught.data.labels import Level, folder_labels, read_labels, usual_level
from selftaught.data.tar_index import TarIndex, plain_files
from selftaught.errors import SelftaughtError, UsageError, counted, printable
from selftaught.files import plain_path, to_csv

SKIPPED_LIMIT = 0.05
RUN_FILES = ("checkpoint.pt", "settings.json")
"""Files by which a run folder is recognized: if one lies among the images, its pictures are left out."""


@dataclass(frozen=True)
class Skipped:
    """A file that was left out, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder, as paths relative to it; ``find_images`` sorts them.

    ``given``: the class of each file where it is not the folder's name; an empty one means "no label".
    ``members``: where each image lies inside the folder's tar shards, if it does.
    ``level``: which folder on the path of an image names its class.
    """

    root: Path
    files: tuple[str, ...]
    given: tuple[str, ...] | None = None
    members: TarIndex | None = field(default=None, hash=False)
    level: Level = "top"

    def __len__(self) -> int:
        return len(self.files)

    def path(self, index: int) -> str:
        """The path for ``open_image``; in a shard a :class:`Member`, which is a path that knows where its bytes lie."""
        path = os.path.join(self.root, self.files[index])  # noqa: PTH118, a Path per image costs too much
        return path if self.members is None else self.members.at(index, self.root, path)

    def paths(self) -> list[str]:
        """The path of each image."""
        return [self.path(i) for i in range(len(self))]

    def without(self, skipped: Sequence[Skipped]) -> "ImageFolder":
        if not skipped:
            return self
        gone = {entry.path for entry in skipped}
        return self._at([i for i, file in enumerate(self.files) if file not in gone])

    def only(self, files: Sequence[str]) -> "ImageFolder":
        """These images in this order, each with its label and its place."""
        if self.given is None and self.members is None:
            return ImageFolder(self.root, tuple(files), level=self.level)
        position = {file: i for i, file in enumerate(self.files)}
        missing = [file for file in files if file not in position]
        if missing:
            raise SelftaughtError(
                f"{counted(len(missing), 'image is', 'images are')} no longer among those of {printable(self.root)}: "
                f"the first is {printable(missing[0])}; put back what was there"
            )
        return self._at([position[file] for file in files])

    def labels(self) -> tuple[str, ...]:
        """The class of each image: the given one, or else the name of a folder on its path."""
        if self.given is not None:
            if "" in self.given:
                raise SelftaughtError(
                    f"{self.given.count('')} of {len(self)} images in {printable(self.root)} without a label, the "
                    f"first is {printable(self.files[self.given.index('')])}; give only images with labels here"
                )
            return self.given
        if self.members is not None:
            raise SelftaughtError(
                f"the shards in {printable(self.root)} have no class folders: labels are a file KEY.cls beside each "
                "KEY.jpg, or else the names of the folders around the images inside the shards"
            )
        labels = folder_labels(self.files, self.level)
        if "" in labels:
            raise SelftaughtError(
                f"{printable(self.root)} has images in no class folder: {printable(self.files[labels.index('')])} "
                "lies directly in it; labels are the names of the folders around them, or the rows of a file (--labels)"
            )
        return labels

    def without_broken_strays(self) -> "ImageFolder":
        """The images without those that lie beside the class folders if none of these can be read: they have no label,
        and need none."""
        if self.given is not None or self.members is not None:
            return self
        labels = folder_labels(self.files, self.level)
        strays = [file for file, label in zip(self.files, labels, strict=True) if not label]
        if len(strays) == len(self) or any(can_be_read(self.root / file) for file in strays):
            return self
        return self.without([Skipped(file, "") for file in strays])

    def labeled_by(self, file: str | os.PathLike[str]) -> "ImageFolder":
        """The same images with the labels of a CSV file, whose paths are absolute or relative to the folder."""
        table = read_labels(file)
        below = plain_path(self.root).as_posix().rstrip("/") + "/"
        given = tuple(
            name if name.endswith("/") else table.get(name) or table.get(below + name, "") for name in self.files
        )
        if "" in given:
            raise UsageError(
                f"{given.count('')} of {len(self)} images in {printable(self.root)} without a label in "
                f"{printable(file)}, the first is {printable(self.files[given.index('')])}; "
                "paths are relative to the folder of images"
            )
        return ImageFolder(self.root, self.files, given, self.members)

    def describe_labels(self) -> str:
        """The number of classes in words, with the folders that name them if the other level gives another number."""
        labels = self.labels()
        text = counted(len(set(labels)), "class", "classes")
        example = f"such as {printable(labels[0])}"
        other: Level = "leaf" if self.level == "top" else "top"
        others = len(set(folder_labels(self.files, other)))
        if self.given is not None or others == len(set(labels)):
            return f"{text}, {example}"
        names = {"top": f"the folders directly in {printable(self.root)}", "leaf": "the folders that hold the images"}
        classes = counted(others, "class", "classes")
        return f"{text}: {names[self.level]}, {example}; {names[other]} would be {classes} (--level {other})"

    def classes(self) -> list[int]:
        """The labels as integers, in the order of their names."""
        labels = self.labels()
        numbers = {name: number for number, name in enumerate(sorted(set(labels)))}
        return [numbers[name] for name in labels]

    def check_classes(self) -> None:
        """Raise an error unless there are at least two classes: with one, every neighbor would be right."""
        names = set(self.labels())
        if len(names) == 1:
            raise SelftaughtError(
                f"all {len(self)} images in {printable(self.root)} are of one class ({printable(names.pop())}), so "
                "there is nothing to measure; labels are the names of the folders in the folder that is given"
            )

    def _at(self, positions: Sequence[int]) -> "ImageFolder":
        return replace(
            self,
            files=tuple(self.files[i] for i in positions),
            given=None if self.given is None else tuple(self.given[i] for i in positions),
            members=None if self.members is None else self.members.only(positions),
        )


def find_images(
    folder: str | os.PathLike[str], level: Level | None = None, *, allow_skipped: bool = False
) -> ImageFolder:
    """All images below a folder, by extension; links are followed (each folder once), hidden files left out.

    Photos in formats that cannot be read here, such as HEIC without its extra, are among them, to be reported.

    ``level``: which folders name classes; by default the folders that hold the images if no image lies beside folders
    of images, otherwise the folders directly in ``folder``.
    ``allow_skipped``: a subfolder that cannot be read is listed in place of its images, its name with a slash at the
    end, to be reported as unreadable too; otherwise it is an error.
    """
    root = Path(folder)
    if not root.exists():
        raise UsageError(f"there is no folder {printable(root)}")
    if not root.is_dir():
        raise UsageError(f"{printable(root)} is a file; give the folder of images")
    found: list[str] = []
    holding: list[str] = []
    seen: set[tuple[int, int]] = set()
    todo = deque([("", str(root))])
    while todo:
        prefix, place = todo.popleft()
        try:
            status = os.stat(place)  # noqa: PTH116
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            if prefix and all(os.path.exists(f"{place}/{name}") for name in RUN_FILES):  # noqa: PTH110
                continue
            before, folders = len(found), []
            with os.scandir(place) as scan:
                for entry in scan:  # one entry at a time: a folder may hold a million
                    name = entry.name
                    if name.startswith("."):
                        continue
                    if _is_folder(entry):
                        folders.append((entry.is_symlink(), name, entry.path))
                    elif name.lower().endswith(PHOTOS):
                        found.append(prefix + name)
        except OSError as error:
            if prefix and allow_skipped:
                found.append(prefix)
                continue
            hint = "; let it be read, or leave it out with --allow-skipped" if prefix else ""
            raise SelftaughtError(f"cannot read the folder {printable(place)}: {error.strerror}{hint}") from None
        if len(found) > before:
            holding.append(prefix.rstrip("/"))
        todo.extend((f"{prefix}{name}/", path) for _, name, path in sorted(folders))
    if not found:
        shards = f"; its tar files are read as '{printable(root)}/*.tar', in quotes" if any(root.glob("*.tar")) else ""
        raise SelftaughtError(
            f"there are no images in {printable(root)}: it needs files named {', '.join(sorted(EXTENSIONS))}{shards}"
        )
    found.sort()
    return ImageFolder(root, tuple(found), level=level or usual_level(holding))


def join_folders(first: ImageFolder, second: ImageFolder) -> ImageFolder:
    """The images of both below their common parent folder, ``first`` with its labels, ``second`` without any.

    An image that is in both appears once, with its label.
    """
    roots = [str(plain_path(images.root)) for images in (first, second)]
    common = os.path.commonpath(roots)
    known, more = (_below(common, root, images) for root, images in zip(roots, (first, second), strict=True))
    seen = set(known.files)
    new = [i for i, file in enumerate(more.files) if file not in seen]
    added = more._at(new)
    members = None
    if known.members or added.members:
        tables = [part.members or plain_files(len(part)) for part in (known, added)]
        members = tables[0].then(tables[1])
    labels = (*first.labels(), *[""] * len(added))
    return ImageFolder(Path(common), known.files + added.files, labels, members)


def check_skipped(folder: ImageFolder, skipped: Sequence[Skipped], *, allow: bool) -> None:
    """Raise an error if no image is left, or if more than 5% of the images are unreadable and ``allow`` is false."""
    if len(skipped) == len(folder):
        raise SelftaughtError(
            f"none of the images in {printable(folder.root)} ({len(folder):,}) can be read: {_first(skipped)}"
        )
    if not allow and len(skipped) > SKIPPED_LIMIT * len(folder):
        raise SelftaughtError(
            f"{len(skipped)} of {len(folder)} images in {printable(folder.root)} cannot be read ({_first(skipped)}); "
            "repair or remove them, or pass --allow-skipped"
        )


def skipped_table(skipped: Sequence[Skipped]) -> str:
    """The content of ``skipped.csv``."""
    return to_csv([("path", "reason"), *((entry.path, entry.reason) for entry in skipped)])


def _below(common: str, root: str, images: ImageFolder) -> ImageFolder:
    """The same images, with paths relative to ``common``, a folder around theirs."""
    inner = os.path.relpath(root, common).replace(os.sep, "/")
    if inner == ".":
        return images
    files = tuple(f"{inner}/{file}" for file in images.files)
    members = None if images.members is None else images.members.below(f"{inner}/")
    return replace(images, root=Path(common), files=files, members=members)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _first(skipped: Sequence[Skipped]) -> str:
    return f"the first is {printable(skipped[0].path)}: {skipped[0].reason}"
