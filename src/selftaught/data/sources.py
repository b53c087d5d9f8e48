"""Sources of images, as a user writes them.

A folder, or ``NAME:ROOT`` or ``NAME:ROOT:SPLIT`` of a benchmark, or tar shards such as ``shards/{000..127}.tar``.
"""

import os
import re
from pathlib import Path

from selftaught.data.benchmarks import BENCHMARKS, SPLITS, benchmark_of, read_benchmark
from selftaught.data.folder import ImageFolder, find_images
from selftaught.data.labels import check_level
from selftaught.data.shards import are_shards, expand, find_in_shards
from selftaught.errors import UsageError, unknown
from selftaught.files import plain_path

WORD = re.compile(r"[A-Za-z][\w-]+")
"""The form of a benchmark's name; a drive letter does not match it."""


def open_images(
    source: str | os.PathLike[str],
    split: str = "train",
    *,
    level: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    allow_skipped: bool = False,
) -> ImageFolder:
    """The images of a folder, of a benchmark or of tar shards.

    ``source``: a folder, or ``"cub:ROOT"``, or ``"cub:ROOT:test"``; if a folder has exactly that name, it is used. Or
    tar files: one, or many by ``{000..127}``, ``{a,b}`` and ``*`` in their name.
    ``split``: the split of a benchmark if the source names none. If neither does, training uses all of NABirds and
    CompCars, as in the paper. Folders and shards have no splits.
    ``level``: which folders name classes: "top", those directly in the folder, or "leaf", those that hold the images;
    by default "leaf" if images lie only in folders without further folders of images.
    ``labels``: a CSV file with the columns path and label that has the label of every image.
    ``allow_skipped``: report a subfolder that cannot be read as an unreadable image, as in :func:`find_images`.
    """
    name, root, named = parse(source)
    chosen = check_level(level)
    if chosen is not None and labels is not None:
        raise UsageError("give the level of the class folders or a file of labels, not both")
    if name is not None:
        if chosen is not None:
            raise UsageError(f"{name}: has labels of its own; a level is for folders: give the folder alone")
        images = read_benchmark(name, root, named or (None if split == "train" else split))
    elif are_shards(root):
        images = find_in_shards(root, chosen)
    else:
        images = find_images(root, chosen, allow_skipped=allow_skipped)
    return images if labels is None else images.labeled_by(labels)


def absolute(source: str | os.PathLike[str]) -> str:
    """The same source with an absolute path, which is valid in any working directory.

    >>> absolute("cub:/data/birds:test")
    'cub:/data/birds:test'
    """
    name, root, split = parse(source)
    if name is None and not Path(root).exists() and are_shards(root):
        # Braces may hold slashes and dots that must not be resolved.
        started = all(os.path.isabs(archive) for archive in expand(root))  # noqa: PTH117
        return root if started else os.path.join(Path.cwd(), root)  # noqa: PTH118
    return ":".join(part for part in (name, str(plain_path(root)), split) if part is not None)


def parse(source: str | os.PathLike[str]) -> tuple[str | None, str, str | None]:
    """The name of a benchmark, its root and its split; of a plain folder or tar shards, only the root.

    It looks at the disk only to tell colons in paths from those between the parts.
    """
    text = os.fspath(source)
    if not text:
        raise UsageError("the folder of images is an empty text (an unset variable?): name a folder")
    if text.startswith("~") and not Path(text).exists():
        text = os.path.expanduser(text)  # noqa: PTH111, a shell does not do it between quotes
    name, colon, rest = text.partition(":")
    if not colon or not WORD.fullmatch(name) or Path(text).exists():
        return None, text, None
    benchmark_of(name)
    rest = os.path.expanduser(rest)  # noqa: PTH111, a shell does not do it after a colon
    if not rest:
        raise UsageError(f"{name}: needs the folder of {BENCHMARKS[name].title} after the colon")
    root, colon, split = rest.rpartition(":")
    if not colon or not root or Path(rest).is_dir():
        return name, rest, None
    if split in SPLITS:
        return name, root, split
    if Path(root).is_dir():
        raise unknown("split", split, SPLITS)
    return name, rest, None
