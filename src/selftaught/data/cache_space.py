"""The space that decoded images take on the disk: where it is, what it holds, and how large it may grow.

All processes and all runs share one limit. While a process writes, it measures the cache again and again.
"""

import json
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from selftaught.errors import SelftaughtError, UsageError
from selftaught.files import open_regular, read_json

try:
    import fcntl
except ImportError:  # Windows has other locks; it does not delete files in use anyway
    fcntl = None  # type: ignore[assignment]

ABOUT = "about.json"
CACHE_PLACE, CACHE_LIMIT = "SELFTAUGHT_CACHE", "SELFTAUGHT_CACHE_GB"
"""Environment variables: the folder of the cache, and how large it may grow."""
MOST_GB = 1e9
FREE = 2 * 2**30
"""Bytes that always stay free on the disk: checkpoints need room too."""


@dataclass(frozen=True)
class Collection:
    """The part of the cache that holds one collection of images."""

    name: str
    folder: Path
    bytes: int
    used: float
    """When it was last used, as a time stamp."""


def cache_root() -> Path:
    """The folder of the cache: ``$SELFTAUGHT_CACHE``, or "selftaught" where the system keeps caches."""
    if place := os.environ.get(CACHE_PLACE):
        return Path(place)
    if place := os.environ.get("XDG_CACHE_HOME"):
        return Path(place) / "selftaught"
    try:
        return Path.home() / ".cache" / "selftaught"
    except RuntimeError:  # a user without a home folder
        user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
        return Path(tempfile.gettempdir(), f"selftaught{user}")


def cached_collections(root: Path | None = None) -> list[Collection]:
    """The collections in the cache, the last used first."""
    found = []
    for about in (cache_root() if root is None else root).glob(f"*/{ABOUT}"):
        with suppress(OSError):
            name = str((read_json(about) or {}).get("collection", about.parent.name))
            found.append(Collection(name, about.parent, _size(about.parent), about.stat().st_mtime))
    return sorted(found, key=lambda collection: -collection.used)


def delete_collection(collection: Collection) -> bool:
    """Delete a collection from the cache; false if a process is using it."""
    try:
        with open_regular(collection.folder / ABOUT) as lock:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(collection.folder)
    except (OSError, SelftaughtError):
        return False
    return True


def claim_collection(folder: Path, collection: str) -> int:
    """Make a collection's folder, note its use, and keep others from deleting it until the returned file is closed."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / ABOUT, os.O_RDWR | os.O_CREAT, 0o666)
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_SH)
    os.ftruncate(file, 0)
    os.write(file, json.dumps({"collection": collection}).encode())
    return file


def cache_limit(root: Path) -> int:
    """How many bytes the cache may take: as asked for, or else half of the sum of its own and the free bytes."""
    asked = os.environ.get(CACHE_LIMIT)
    if asked is None:
        return (_held(root) + free_space(root)) // 2
    gigabytes = -1.0
    with suppress(ValueError):
        gigabytes = float(asked)
    if not 0 <= gigabytes < MOST_GB:
        raise UsageError(f"{CACHE_LIMIT} must be a number of gigabytes, 0 to keep nothing, but is {asked!r}")
    return int(gigabytes * 1e9)


def make_room(root: Path, own: Path, need: int) -> int:
    """How many bytes may be added to the cache now.

    If they are fewer than ``need``, collections that no process uses are deleted, the least recently used first.
    ``own``: the folder that stays.
    """
    limit, total = cache_limit(root), _held(root)
    if total + need > limit:
        for collection in reversed(cached_collections(root)):
            if total + need <= limit:
                break
            if collection.folder != own and delete_collection(collection):
                total -= collection.bytes
    return min(limit - total, free_space(root) - FREE)


def free_space(root: Path) -> int:
    """The free bytes of the disk that holds the cache."""
    return shutil.disk_usage(root).free


def _held(root: Path) -> int:
    """The bytes of all collections together."""
    return sum(_size(Path(entry.path)) for entry in os.scandir(root) if entry.is_dir())


def _size(folder: Path) -> int:
    """The bytes of the files in a folder, without those that are deleted meanwhile or cannot be read."""
    size = 0
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                size += entry.stat().st_size
    return size
