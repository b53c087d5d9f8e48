"""Images in tar shards in WebDataset's layout: ``key.jpg``, and optionally ``key.cls`` with its class beside it."""

import glob
import os
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from selftaught.data.folder import ImageFolder
from selftaught.data.images import EXTENSIONS, PHOTOS
from selftaught.data.labels import Level, folder_labels, usual_level
from selftaught.data.tar import list_members
from selftaught.data.tar_index import TarIndex
from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import plain_path

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
WILD = re.compile(r"[*?[]")
MOST_SHARDS = 100_000
READ_AT_ONCE = 16
"""The number of shards whose headers are read at the same time: on network storage each of them takes a while."""
LONGEST_CLASS = 1000
"""The largest size of a class name in bytes; a longer file is not a class name."""


def are_shards(source: str) -> bool:
    """Whether a source means tar files rather than a folder."""
    return not Path(source).is_dir() and any(name.lower().endswith(ENDINGS) for name in expand(source))


def expand(pattern: str) -> list[str]:
    """The names that braces stand for, as in a shell: ranges and lists.

    Example:
        >>> expand("{a,b}/{08..10}.tar")
        ['a/08.tar', 'a/09.tar', 'a/10.tar', 'b/08.tar', 'b/09.tar', 'b/10.tar']
    """

    def names(text: str) -> Iterator[str]:
        if (match := BRACES.search(text)) is None:
            yield text
            return
        for word in _words(match):
            yield from names(text[: match.start()] + word + text[match.end() :])

    found = list(islice(names(pattern), MOST_SHARDS + 1))
    if len(found) > MOST_SHARDS:
        raise UsageError(f"{printable(pattern)} stands for over {MOST_SHARDS} shards: make them fewer and larger")
    return list(dict.fromkeys(found))


def find_in_shards(pattern: str, level: Level | None) -> ImageFolder:
    """The images in the shards that a pattern names, in the order of the shards and within them.

    ``level``: which folders inside the shards name classes, as in ``find_images``; files KEY.cls are then ignored.
    """
    archives = _archives(pattern)
    root = Path(_common(archives))
    with ThreadPoolExecutor(min(READ_AT_ONCE, len(archives))) as threads:
        shards = list(threads.map(_read_shard, archives))
    if not any(shard.names for shard in shards):
        raise SelftaughtError(
            f"there are no images in {printable(pattern)}: it needs members named {', '.join(sorted(EXTENSIONS))}"
        )
    inner = [os.path.relpath(archive, root).replace(os.sep, "/") for archive in archives]
    table = TarIndex(tuple(inner), array("l"), array("q"), array("q"))
    for number, shard in enumerate(shards):
        table.archive.extend([number] * len(shard.names))
        table.offsets.extend(shard.offsets)
        table.sizes.extend(shard.sizes)
    files = tuple(f"{place}/{name}" for place, shard in zip(inner, shards, strict=True) for name in shard.names)
    return ImageFolder(root, files, _labels(shards, level), table)


class _Shard(NamedTuple):
    names: list[str]
    offsets: "array[int]"
    sizes: "array[int]"
    classes: list[str]
    """The class beside each image; "" if there is no valid one."""


def _read_shard(archive: str) -> _Shard:
    places = list_members(archive)
    shown = [name for name in places if not name.startswith(".") and "/." not in name]
    names = [name for name in shown if name.lower().endswith(PHOTOS)]
    return _Shard(
        names,
        array("q", (places[name][0] for name in names)),
        array("q", (places[name][1] for name in names)),
        list(_classes(archive, names, places)),
    )


def _classes(archive: str, names: Sequence[str], places: dict[str, tuple[int, int]]) -> Iterator[str]:
    with open(archive, "rb", buffering=0) as file:  # noqa: PTH123
        for name in names:
            offset, size = places.get(os.path.splitext(name)[0] + ".cls", (0, 0))  # noqa: PTH122
            file.seek(offset)
            text = file.read(size) if size <= LONGEST_CLASS else b""
            try:
                label = text.decode("utf-8").strip()
            except UnicodeDecodeError:
                label = ""
            yield sys.intern(label)


def _labels(shards: Sequence[_Shard], level: Level | None) -> tuple[str, ...] | None:
    """The classes beside images if there are any; otherwise the folders around images; None if there are neither."""
    if level is None and any(any(shard.classes) for shard in shards):
        return tuple(name for shard in shards for name in shard.classes)  # an empty one is reported as a mistake
    names = [name for shard in shards for name in shard.names]
    folders = folder_labels(names, "leaf")
    labels = folder_labels(names, level or usual_level(folders))
    return None if "" in labels else labels


def _archives(pattern: str) -> list[str]:
    """The files that a pattern stands for, each once; all of them must exist."""
    names = [pattern] if Path(pattern).exists() else expand(pattern)
    found: list[str] = []
    for name in names:
        if Path(name).is_file():
            found.append(name)
        elif WILD.search(name):
            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207, relative patterns stay relative
            matches = [match for match in matches if Path(match).is_file()]
            if not matches:
                raise UsageError(f"there is no shard that matches {printable(name)}")
            found += matches
        else:
            among = "" if len(names) == 1 else f", one of the {len(names)} of {printable(pattern)}"
            hint = ": ranges are of numbers, as {000..127}, lists as {a,b}" if "{" in name else ""
            raise UsageError(f"there is no shard {printable(name)}{among}{hint}")
    once: dict[str, str] = {}
    for name in found:
        once.setdefault(os.path.normpath(name), name)
    return list(once.values())


def _common(archives: Sequence[str]) -> str:
    parents = {os.path.dirname(archive) for archive in archives}  # noqa: PTH120
    if len(parents) > 1:
        parents = {str(plain_path(parent)) for parent in parents}
    return os.path.commonpath(parents)


def _words(match: re.Match[str]) -> list[str]:
    first, last, listed = match.groups()
    if listed is not None:
        return listed.split(",")
    padded = any(text.startswith("0") and len(text) > 1 for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    step = 1 if int(first) <= int(last) else -1
    numbers = range(int(first), int(last) + step, step)
    return [f"{number:0{width}d}" for number in numbers[: MOST_SHARDS + 1]]
