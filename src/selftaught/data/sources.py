"""Where images come from, as a user writes it: a folder, or ``NAME:ROOT`` or ``NAME:ROOT:SPLIT`` of a benchmark."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from selftaught.data.benchmarks import BENCHMARKS, SPLITS, benchmark_of, find_benchmark, read_benchmark
from selftaught.data.folder import ImageFolder, find_images
from selftaught.errors import UsageError, unknown

__all__ = ["Source", "absolute", "find_benchmark", "open_images", "parse"]

WORD = re.compile(r"[A-Za-z][\w-]+")
"""What may be meant as a benchmark's name; a drive's letter is not."""


@dataclass(frozen=True)
class Source:
    """A source in its parts; without ``name`` it is a plain folder."""

    name: str | None
    root: str
    split: str | None


def open_images(source: str | os.PathLike[str], split: str = "train") -> ImageFolder:
    """The images of a folder or of a benchmark.

    ``source``: a folder, or ``"cub:ROOT"``, or ``"cub:ROOT:test"``; a folder of that very name comes first.
    ``split``: what is read of a benchmark where the source does not say. Without a named split, NABirds and CompCars
    are trained on as a whole, as in the paper. A plain folder has no splits.
    """
    parts = parse(source)
    if parts.name is None:
        return find_images(parts.root)
    asked = None if split == "train" else split
    return read_benchmark(parts.name, parts.root, parts.split or asked)


def absolute(source: str | os.PathLike[str]) -> str:
    """The same source from wherever it is opened: its path made absolute.

    >>> absolute("cub:/data/birds:test")
    'cub:/data/birds:test'
    """
    parts = parse(source)
    root = os.path.abspath(parts.root)  # noqa: PTH100, keeps links as they are
    return ":".join(part for part in (parts.name, root, parts.split) if part is not None)


def parse(source: str | os.PathLike[str]) -> Source:
    """The parts of a source; looks at the disk only to tell colons in paths from those between the parts."""
    text = os.fspath(source)
    name, colon, rest = text.partition(":")
    if not colon or not WORD.fullmatch(name) or Path(text).exists():
        return Source(None, text, None)
    benchmark_of(name)
    rest = os.path.expanduser(rest)  # noqa: PTH111, a shell does not do it after a colon
    if not rest:
        raise UsageError(f"{name}: needs the folder of {BENCHMARKS[name].title} after the colon")
    root, colon, split = rest.rpartition(":")
    if not colon or not root or Path(rest).is_dir():
        return Source(name, rest, None)
    if split in SPLITS:
        return Source(name, root, split)
    if Path(root).is_dir():
        raise unknown("split", split, SPLITS)
    return Source(name, rest, None)
