"""A benchmark: its official archive, how to recognize it, and the list of its images, read from its index files."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from selftaught.errors import SelftaughtError, printable
from selftaught.files import read_file


class Listed(NamedTuple):
    """An image of a benchmark; ``part`` is train, test, or empty if the data set has no such parts."""

    file: str
    label: str
    part: str


@dataclass(frozen=True)
class Counts:
    """Numbers of images and classes of a split; ``classes`` is None if no official number is known."""

    images: int
    classes: int | None


@dataclass(frozen=True)
class Benchmark:
    """A data set as in its official archive.

    Labels are numbered with leading zeros, so that their sorted order is the official one.
    """

    name: str
    title: str
    origin: str
    """The files that a user must get, and where."""
    inner: str
    """The folder the archive unpacks to; empty if it has none."""
    signature: str
    """In words, how its folder is recognized."""
    holds: Callable[[Path], bool]
    """Whether a folder holds this data set; looks at very few files."""
    images: Callable[[Path], list[Listed]]
    """All images of that folder, relative to it, as the index files list them."""
    expected: Mapping[str, Counts]
    """The official counts by split."""
    training: str = "train"
    """The split to train on if none is named."""


def has_files(folder: Path, *names: str) -> bool:
    return all(os.path.isfile(folder / name) for name in names)  # noqa: PTH113, false also without permission


def read_rows(file: Path, pattern: str, example: str, header: str | None = None) -> list[tuple[str, ...]]:
    """The groups of ``pattern`` in every line; blank lines are skipped."""
    rows: list[tuple[str, ...]] = []
    for number, line in enumerate(read_file(file).decode("utf-8", "surrogateescape").splitlines(), 1):
        if number == 1 and header is not None:
            if line.split() != header.split():
                raise _malformed(file, number, line, header)
        elif line.strip():
            match = re.fullmatch(pattern, line.strip())
            if match is None:
                raise _malformed(file, number, line, example)
            rows.append(match.groups())
    return rows


def read_images(folder: Path, key: str, examples: tuple[str, str]) -> list[tuple[str, str, int]]:
    """``images.txt`` and ``image_class_labels.txt`` as (key, path, class); ``key`` is the pattern of an image's key."""
    index, classes = folder / "images.txt", folder / "image_class_labels.txt"
    class_of = {row[0]: int(row[1]) for row in read_rows(classes, rf"({key})\s+(\d+)", examples[1])}
    images: list[tuple[str, str, int]] = []
    for image, path in read_rows(index, rf"({key})\s+([^/]+/.+)", examples[0]):
        if image not in class_of:
            raise SelftaughtError(
                f"{printable(classes)} has no class for image {printable(image)} of {index.name}: "
                "unpack the archive again"
            )
        images.append((image, path, class_of[image]))
    return images


def _malformed(file: Path, number: int, line: str, example: str) -> SelftaughtError:
    return SelftaughtError(
        f"line {number} of {printable(file)} is {printable(line[:80])!r}, but should be like {example!r}: "
        "unpack the archive again"
    )
