"""What a benchmark is: the archive it comes in, how to tell it, and the list of its images."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Listed(NamedTuple):
    """An image of a benchmark; ``part`` is train, test, or empty where the data set has no such parts."""

    file: str
    label: str
    part: str


@dataclass(frozen=True)
class Count:
    """Images and classes of a split; ``classes`` is None where no official number is known."""

    images: int
    classes: int | None


@dataclass(frozen=True)
class Benchmark:
    """A data set as its official archive has it.

    Labels are numbered with leading zeros, so that their sorted order is the official one.
    """

    name: str
    title: str
    origin: str
    """What a person has to get, and where."""
    inner: str
    """The folder the archive unpacks to; empty if it has none."""
    signature: str
    """What a folder is told by, in words."""
    holds: Callable[[Path], bool]
    """Whether a folder is that of this data set, by a look at very few files."""
    images: Callable[[Path], list[Listed]]
    """All images of that folder, relative to it, as the index files list them."""
    expected: Mapping[str, Count]
    """The official counts by split."""
    training: str = "train"
    """The split to train on where none is named."""
