"""Changes of an index: images are added, removed, brought in line with a folder."""

import glob
import os
import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from selftaught.console import Reporter
from selftaught.data import (
    Failures,
    ImageFolder,
    Skipped,
    Stamp,
    absolute,
    check_skipped,
    expand,
    open_images,
    pick_evenly,
    stamp,
)
from selftaught.devices import available_cores
from selftaught.errors import UsageError, counted, printable
from selftaught.files import as_path, lock_folder, plain_path
from selftaught.index.collection import Index
from selftaught.index.scale import read_scale, write_scale
from selftaught.index.table import ImageRow, ImageTable, is_below
from selftaught.index.thumbnails import thumbnail

SAVE_INTERVAL = 5.0
"""Seconds of work that a kill may cost."""
RECALL_SAMPLE, RECALL_AT = 200, 10
IN_SHARD = re.compile(r"\.tar(?=/)", re.IGNORECASE)
"""The end of a shard's name, or of a folder's that is called like one, in the path of an image."""


@dataclass(frozen=True)
class Change:
    """The number of images written and removed, and the images that could not be read."""

    written: int = 0
    removed: int = 0
    skipped: tuple[Skipped, ...] = ()


def add_images(
    index: Index, source: str | os.PathLike[str], *, allow_skipped: bool = False, quiet: bool = False
) -> Change:
    """Embed the images of a folder (or shards) that are new or have changed, and write them into the index."""
    images, reporter = open_images(source, "all", allow_skipped=allow_skipped), Reporter(quiet)
    with lock_folder(index.folder):
        index.table.refresh()
        return _finish(index.table, _add(index, images, allow_skipped, reporter), reporter)


def sync_images(
    index: Index, source: str | os.PathLike[str] | None = None, *, allow_skipped: bool = False, quiet: bool = False
) -> Change:
    """Make the index match a folder or shards (by default each that it was made from); images elsewhere stay."""
    reporter = Reporter(quiet)
    sources = [source] if source is not None else _sources(index.table)
    try:
        # All before the first change: a missing folder changes nothing.
        folders = [open_images(place, "all", allow_skipped=allow_skipped) for place in sources]
    except UsageError as error:
        how = "; if it is gone for good, take it out with selftaught index remove" if source is None else ""
        raise UsageError(f"{error}{how}") from None
    total = Change()
    with lock_folder(index.folder):
        index.table.refresh()
        for place, images in zip(sources, folders, strict=True):
            root, here = str(plain_path(images.root)), set(_paths(images))
            shards = None
            if images.members is not None:  # all names that were asked for, and those that are there
                shards = [str(plain_path(name)) for name in expand(absolute(place))]
                shards += [glob.escape(str(Path(root, name))) for name in images.members.archives]
            below = [path for path in index.table.paths() if is_below(path, root) and path not in here]
            gone = [path for path in below if _is_of(shards, path)]
            index.table.remove(gone)
            change = _add(index, images, allow_skipped, reporter)
            removed = total.removed + len(gone) + change.removed
            total = Change(total.written + change.written, removed, total.skipped + change.skipped)
        return _finish(index.table, total, reporter)


def remove_images(table: ImageTable, paths: Iterable[str | os.PathLike[str]], *, quiet: bool = False) -> Change:
    """Take images, and all images below folders, out of an index; their files stay, and no model is needed."""
    asked = [str(plain_path(path)) for path in paths]
    with lock_folder(table.folder):
        table.refresh()
        known = table.paths()
        for path in asked:
            if not any(is_below(one, path) for one in known):
                raise UsageError(f"{printable(path)} is not in the index {printable(table.folder)}: nothing is removed")
        gone = [one for one in known if any(is_below(one, path) for path in asked)]
        table.remove(gone)
        return _finish(table, Change(removed=len(gone)), Reporter(quiet))


def _add(index: Index, images: ImageFolder, allow_skipped: bool, reporter: Reporter) -> Change:
    paths = _paths(images)
    known = index.table.column("path", "size", "changed").to_pydict()
    states = dict(zip(map(as_path, known["path"]), zip(known["size"], known["changed"], strict=True), strict=True))
    current = list(map(stamp, images.paths()))  # before reading: later changes are noticed
    new = [i for i, path in enumerate(paths) if states.get(path) != current[i]]
    if len(new) < len(images):
        count = f"{len(images) - len(new)} of {counted(len(images), 'image')} in {printable(images.root)}"
        reporter.say(f"in the index already: {count}")
    skipped: list[Skipped] = []
    root = str(plain_path(images.root))
    with (
        reporter.work("indexing images", len(images), len(images) - len(new)) as tell,
        closing(_Writer(index)) as writer,
    ):

        def add(batch: list[int], vectors: Tensor, failures: Failures) -> None:
            bad = dict(failures)
            good = [i for position, i in enumerate(batch) if position not in bad]
            skipped.extend(Skipped(images.files[batch[position]], reason) for position, reason in failures)
            writer.add([(paths[i], root, current[i], images.path(i)) for i in good], vectors)

        index.embedder.encoding.encode_rest(images, new, tell, add, writer.save)
    if skipped:
        check_skipped(images, skipped, allow=allow_skipped)
    stale = [path for one in skipped if (path := os.path.join(root, one.path)) in states]  # noqa: PTH118
    index.table.remove(stale)
    return Change(len(new) - len(skipped), len(stale), tuple(skipped))


class _Writer:
    """Writes rows to the table every few seconds; thumbnails are made while images are embedded."""

    def __init__(self, index: Index) -> None:
        self._table = index.table
        self._pool = ThreadPoolExecutor(min(4, available_cores()))
        self._rows: list[tuple[str, str, Stamp, Future[bytes]]] = []
        self._vectors: list[Tensor] = []
        self._saved = time.monotonic()

    def add(self, images: Sequence[tuple[str, str, Stamp, str]], vectors: Tensor) -> None:
        """Add a batch: (stored path, folder, identity, path to read) and the vector of each image."""
        for path, root, state, place in images:
            self._rows.append((path, root, state, self._pool.submit(thumbnail, place)))
        self._vectors.append(vectors)
        if time.monotonic() - self._saved >= SAVE_INTERVAL:
            self.save()

    def save(self) -> None:
        if self._rows:
            rows = [ImageRow(path, root, *state, small.result()) for path, root, state, small in self._rows]
            self._table.put(rows, torch.cat(self._vectors))
        self._rows, self._vectors = [], []
        self._saved = time.monotonic()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _finish(table: ImageTable, change: Change, reporter: Reporter) -> Change:
    """Tidy an index that has changed, write its scale of distances, and print the recall of an approximate search."""
    if read_scale(table) is None:  # also where a killed process has changed it
        built = table.tidy()
        write_scale(table)
        if table.is_approximate:
            did = "built" if built else "extended"
            reporter.say(f"an IVF_RQ index was {did}: it finds {measure_recall(table):.1%} of the {RECALL_AT} nearest")
    return change


def measure_recall(table: ImageTable) -> float:
    """The fraction of the true 10 nearest that the approximate search finds, over evenly spaced images."""
    _, vectors = table.take_vectors(pick_evenly(len(table), RECALL_SAMPLE))
    exact, found = (table.nearest(vectors, RECALL_AT, exact=exact) for exact in (True, False))
    pairs = zip(exact, found, strict=True)
    hits = [len({row[0] for row in true} & {row[0] for row in near}) / len(true) for true, near in pairs]
    return sum(hits) / len(hits)


def _sources(table: ImageTable) -> list[str]:
    """The folders and shards whose images are in an index."""
    rows = table.column("root", "path")
    found: set[str] = set()
    is_folder = cache(os.path.isdir)  # many images lie in one shard
    for root, path in zip(map(as_path, rows["root"].to_pylist()), map(as_path, rows["path"].to_pylist()), strict=True):
        ends = (path[: match.end()] for match in IN_SHARD.finditer(path))
        found.add(next((glob.escape(name) for name in ends if not is_folder(name)), root))
    return sorted(found)


def _is_of(shards: Sequence[str] | None, path: str) -> bool:
    """Whether an image lies, or has lain, in a shard of one of these names; without any, whether it lies in none."""
    names = [path[: found.end()] for found in IN_SHARD.finditer(path)]
    there = [name for name in names if Path(name).is_file()]
    if shards is None:
        return not there
    return any(Path(name).match(shard) for name in there or names for shard in shards)


def _paths(images: ImageFolder) -> list[str]:
    """The absolute path of each image."""
    root = plain_path(images.root)
    return [os.path.join(root, file) for file in images.files]  # noqa: PTH118, a Path per image costs too much
