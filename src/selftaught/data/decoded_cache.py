"""Decoded images on the disk: each file is decoded once, and found again by its path, size and time of change.

A collection of images has a folder of its own, with segments in it: a file of pixels and a file of fixed-size records.
A process only ever appends to a segment that it began itself, pixels first, so that no lock is needed and a kill at any
moment leaves nothing worse than pixels without a record.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from selftaught.data.images import identity
from selftaught.errors import ImageError, UsageError

try:
    import fcntl
except ImportError:  # Windows has other locks; there, what is in use cannot be deleted anyway
    fcntl = None  # type: ignore[assignment]

RECORD = np.dtype(
    [
        ("key", "<u8"),
        ("bytes", "<i8"),
        ("changed", "<i8"),
        ("start", "<i8"),
        ("width", "<i4"),
        ("height", "<i4"),
        ("original_width", "<i4"),
        ("original_height", "<i4"),
    ]
)
FORMAT = 1
ABOUT = "about.json"
PLACE, LIMIT = "SELFTAUGHT_CACHE", "SELFTAUGHT_CACHE_GB"
"""Environment variables: the folder of the cache, and how large it may grow."""
MOST_GB = 1e9
FREE = 2**30
"""What is left free on the disk in any case."""


@dataclass(frozen=True)
class Found:
    """An image in the cache."""

    pixels: np.ndarray
    """uint8 height×width×3, mapped from the disk."""
    original: tuple[int, int]
    """Width and height before it was made smaller."""


class DecodedCache:
    """The decoded images of one collection, to read and to add to."""

    def __init__(self, collection: str, root: Path | None = None, limit: int | None = None) -> None:
        """``collection``: what the images have in common, such as their folder; it names the cache's folder."""
        root = cache_root() if root is None else root
        name = f"{FORMAT}\0{collection}".encode("utf-8", "surrogateescape")
        self.folder = root / hashlib.blake2b(name, digest_size=8).hexdigest()
        self.closed_because: str | None = None
        """Why nothing more is stored, if so."""
        self._state: list[tuple[str, int]] = []
        self._pixels: list[np.ndarray] = []
        self._segments = np.empty(0, np.int32)
        self._records = np.empty(0, RECORD)
        self._writing: tuple[BinaryIO, BinaryIO] | None = None
        self._waiting: list[tuple[int, ...]] = []
        self._written = 0
        self._lock: BinaryIO | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            about = {"format": FORMAT, "collection": collection}
            (self.folder / ABOUT).write_text(json.dumps(about), "utf-8", "surrogateescape")  # its time is the last use
            self._lock = (self.folder / ABOUT).open("rb")
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_SH)  # a process that makes room leaves this one alone
            self._room = _make_room(root, self.folder, limit)
            self.refresh()
        except OSError as error:
            self._stop(error)

    def refresh(self) -> bool:
        """Take in what was added since the last time, by this process or another; false if nothing was."""
        self.flush()
        files = [file for file in sorted(self.folder.glob("*.index")) if file.with_suffix(".pixels").exists()]
        state = [(file.name, file.stat().st_size) for file in files]
        if state == self._state:
            return False
        self._state = state
        records, segments, self._pixels = [], [], []
        for number, file in enumerate(files):
            content = file.read_bytes()
            found = np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)
            place = file.with_suffix(".pixels")
            size = place.stat().st_size
            ends = found["start"] + 3 * found["width"].astype(np.int64) * found["height"]
            records.append(found[ends <= size])
            segments.append(np.full(len(records[-1]), number, np.int32))
            self._pixels.append(np.memmap(place, np.uint8, "r") if size else np.empty(0, np.uint8))
        if records:
            table, places = np.concatenate(records), np.concatenate(segments)
            order = table["key"].argsort(kind="stable")
            self._records, self._segments = table[order], places[order]
        return True

    def find(self, kind: str, paths: Sequence[str]) -> list[int]:
        """Where each image is, as a number for :meth:`image`; -1 if it is not there or the file has changed."""
        if not len(self._records):
            return [-1] * len(paths)
        keys = np.array([_key(kind, path) for path in paths], np.uint64)
        first, last = (np.searchsorted(self._records["key"], keys, side) for side in ("left", "right"))
        places = zip(paths, first.tolist(), last.tolist(), strict=True)
        return [self._newest(path, low, high) for path, low, high in places]

    def image(self, slot: int) -> Found:
        record = self._records[slot]
        start, width, height = (int(record[name]) for name in ("start", "width", "height"))
        pixels = self._pixels[self._segments[slot]][start : start + 3 * width * height].reshape(height, width, 3)
        return Found(pixels, (int(record["original_width"]), int(record["original_height"])))

    def sizes(self, slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Width and height of each image as it is stored, and as it was: n×2 each."""
        records = self._records[np.asarray(slots, np.int64)]
        stored = np.stack([records["width"], records["height"]], 1).astype(np.int64)
        return stored, np.stack([records["original_width"], records["original_height"]], 1).astype(np.int64)

    def add(self, kind: str, path: str, pixels: np.ndarray, original: tuple[int, int], stamp: tuple[int, int]) -> None:
        """Store an image, unless the cache is full. It is found after the next :meth:`refresh`.

        ``stamp``: the file's :func:`identity` when it was read.
        """
        if self.closed_because is not None:
            return
        try:
            if pixels.nbytes > self._room:
                self.closed_because = f"it has reached its limit ({LIMIT} sets another)"
                return
            self._writing = self._writing or self._begin()
            self._writing[0].write(np.ascontiguousarray(pixels).data)
            height, width = pixels.shape[:2]
            record = (_key(kind, path), *stamp, self._written, width, height, *original)
            self._written += pixels.nbytes
            self._room -= pixels.nbytes + RECORD.itemsize
            self._waiting.append(record)
            if len(self._waiting) >= 256:
                self.flush()
        except OSError as error:
            self._stop(error)

    def flush(self) -> None:
        """Let other processes find what was added."""
        if self._writing is None:
            return
        data, index = self._writing
        try:
            data.flush()
            index.write(np.array(self._waiting, RECORD).tobytes())
            index.flush()
            self._waiting.clear()
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        self.flush()
        for file in (*(self._writing or ()), self._lock):
            if file is not None:
                file.close()
        self._writing = self._lock = None

    def _newest(self, path: str, low: int, high: int) -> int:
        if low == high:
            return -1
        try:
            now = identity(path)
        except ImageError:
            return -1
        for slot in range(high - 1, low - 1, -1):
            if (self._records["bytes"][slot], self._records["changed"][slot]) == now:
                return slot
        return -1

    def _begin(self) -> tuple[BinaryIO, BinaryIO]:
        name = f"{len(self._pixels):04d}-{os.getpid()}-{os.urandom(3).hex()}"
        return (self.folder / f"{name}.pixels").open("wb"), (self.folder / f"{name}.index").open("wb")

    def _stop(self, error: OSError) -> None:
        self.closed_because = f"{self.folder}: {error.strerror or error}"
        with suppress(OSError):
            for file in self._writing or ():
                file.close()
        self._writing = None


def cache_root() -> Path:
    """The folder of the cache: ``$SELFTAUGHT_CACHE``, or "selftaught" where the system keeps caches."""
    if place := os.environ.get(PLACE):
        return Path(place)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selftaught"


@dataclass(frozen=True)
class Collection:
    """What the cache holds of one collection."""

    name: str
    folder: Path
    bytes: int
    used: float
    """When it was last used, as a time stamp."""


def collections(root: Path | None = None) -> list[Collection]:
    """What is in the cache, the last used first."""
    found = []
    for about in (cache_root() if root is None else root).glob(f"*/{ABOUT}"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            name = json.loads(about.read_text("utf-8", "surrogateescape"))["collection"]
            size = sum(file.stat().st_size for file in about.parent.iterdir())
            found.append(Collection(name, about.parent, size, about.stat().st_mtime))
    return sorted(found, key=lambda collection: -collection.used)


def delete(collection: Collection) -> bool:
    """Delete a collection from the cache; false if a process is using it."""
    try:
        with (collection.folder / ABOUT).open("rb") as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(collection.folder)
    except OSError:
        return False
    return True


def limit_of(root: Path) -> int:
    """How many bytes the cache may take: as asked for, or else half of what it has and what is free."""
    asked = os.environ.get(LIMIT)
    if asked is not None:
        gigabytes = -1.0
        with suppress(ValueError):
            gigabytes = float(asked)
        if not 0 <= gigabytes < MOST_GB:
            raise UsageError(f"{LIMIT} must be a number of gigabytes, 0 to keep nothing, but is {asked!r}")
        return int(gigabytes * 1e9)
    held = sum(collection.bytes for collection in collections(root))
    return (held + shutil.disk_usage(root).free) // 2


def _make_room(root: Path, own: Path, limit: int | None) -> int:
    """How many bytes may be added, after deleting what was not used for longest, if the cache is over its limit."""
    limit = limit_of(root) if limit is None else limit
    held = collections(root)
    total = sum(collection.bytes for collection in held)
    for collection in reversed(held):
        if total <= limit:
            break
        if collection.folder != own and delete(collection):
            total -= collection.bytes
    return min(limit - total, shutil.disk_usage(root).free - FREE)


def _key(kind: str, path: str) -> int:
    name = f"{kind}\0{path}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
