"""A folder, however nested, as a list of images; class folders as labels."""

import csv
import io
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from selftaught.data.images import EXTENSIONS
from selftaught.errors import SelftaughtError, UsageError, shown

SKIPPED_LIMIT = 0.05
RUN_FILES = {"settings.json", "checkpoint.pt"}
"""What a run folder holds; its pictures are no images to learn from, should it lie among them."""


@dataclass(frozen=True)
class Skipped:
    """A file that was left out, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class ImageFolder:
    """The images of a folder, as paths relative to it in sorted order."""

    root: Path
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def path(self, index: int) -> str:
        return os.path.join(self.root, self.files[index])  # noqa: PTH118, a Path per image costs too much

    def without(self, skipped: Sequence[Skipped]) -> "ImageFolder":
        gone = {entry.path for entry in skipped}
        return ImageFolder(self.root, tuple(file for file in self.files if file not in gone))

    def only(self, files: Sequence[str]) -> "ImageFolder":
        return ImageFolder(self.root, tuple(files))

    def labels(self) -> tuple[str, ...]:
        """The class of each image: the first folder on its path."""
        for file in self.files:
            if "/" not in file:
                raise SelftaughtError(
                    f"{shown(self.root)} has no class folders: {shown(file)} lies directly in it; "
                    "labels are the names of the folders around the images"
                )
        return tuple(file.split("/", 1)[0] for file in self.files)

    def classes(self) -> list[int]:
        """The labels as integers, in the order of their names."""
        labels = self.labels()
        numbers = {name: number for number, name in enumerate(sorted(set(labels)))}
        return [numbers[name] for name in labels]


def find_images(folder: str | os.PathLike[str]) -> ImageFolder:
    """All images below a folder, by extension; links are followed (each folder once), hidden files left out."""
    root = Path(folder)
    if not root.exists():
        raise UsageError(f"there is no folder {shown(root)}")
    if not root.is_dir():
        raise UsageError(f"{shown(root)} is a file; give the folder of images")
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    todo = deque([("", str(root))])
    while todo:
        prefix, place = todo.popleft()
        try:
            status = os.stat(place)  # noqa: PTH116
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(place) as scan:
                entries = sorted(scan, key=lambda entry: (entry.is_symlink(), entry.name))
        except OSError as error:
            raise SelftaughtError(f"cannot read the folder {shown(place)}: {error.strerror}") from None
        if prefix and {entry.name for entry in entries} >= RUN_FILES:
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                todo.append((f"{prefix}{entry.name}/", entry.path))
            elif os.path.splitext(entry.name)[1].lower() in EXTENSIONS:  # noqa: PTH122
                found.append(prefix + entry.name)
    if not found:
        raise SelftaughtError(
            f"there are no images in {shown(root)}: it needs files named {', '.join(sorted(EXTENSIONS))}"
        )
    return ImageFolder(root, tuple(sorted(found)))


def check_skipped(folder: ImageFolder, skipped: Sequence[Skipped], *, allow: bool) -> None:
    """An error if nothing is left, or if more is unreadable than a few stray files would explain."""
    if len(skipped) == len(folder):
        raise SelftaughtError(
            f"none of the {len(folder)} images in {shown(folder.root)} can be read: {_first(skipped)}"
        )
    if not allow and len(skipped) > SKIPPED_LIMIT * len(folder):
        raise SelftaughtError(
            f"{len(skipped)} of {len(folder)} images in {shown(folder.root)} cannot be read ({_first(skipped)}); "
            "mend or remove them, or pass --allow-skipped"
        )


def skipped_table(skipped: Sequence[Skipped]) -> str:
    """The content of ``skipped.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "reason"])
    writer.writerows((entry.path, entry.reason) for entry in skipped)
    return text.getvalue()


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _first(skipped: Sequence[Skipped]) -> str:
    return f"the first is {shown(skipped[0].path)}: {skipped[0].reason}"
