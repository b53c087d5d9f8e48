"""A benchmark: its official archive, how to recognize it, and the list of its images."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Listed(NamedTuple):
    """An image of a benchmark; ``part`` is train, test, or empty if the data set has no such parts."""

    file: str
    label: str
    part: str


@dataclass(frozen=True)
class Count:
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
    expected: Mapping[str, Count]
    """The official counts by split."""
    training: str = "train"
    """The split to train on if none is named."""
