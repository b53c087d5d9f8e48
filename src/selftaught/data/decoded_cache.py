"""Decoded images on the disk: each file is decoded once, and found again by its path, size and time of change.

A collection of images has a folder of its own. It holds segments: a file of pixels and a file of fixed-size records.
A process appends only to a segment that it began itself, pixels first, so that no lock is needed and a kill at any
moment leaves nothing worse than pixels without a record. Nothing read is trusted: a checksum covers the record and its
pixels, and an image that is damaged, cut off or missing counts as not stored.
"""

import hashlib
import os
from bisect import bisect
from collections.abc import Sequence
from io import FileIO
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from selftaught.data.cache_segments import RECORD, Segment, SegmentWriter, checksum, list_segments, read_records
from selftaught.data.cache_space import CACHE_LIMIT, FREE, cache_root, claim_collection, free_space, make_room
from selftaught.data.decoded_images import DecodedImage
from selftaught.data.images import stamp

FORMAT = 2
"""The version of the files and of what they store: each version has collections of its own."""
MEASURED_EVERY = 8 * 2**20
"""Bytes that are stored before the space on the disk is measured again; fewer near the limit."""
OPEN_FILES = 64
UNKNOWN, GOOD, BAD = 0, 1, 2


class DecodedCache:
    """The decoded images of one collection, to read and to add to."""

    def __init__(self, collection: str, root: Path | None = None) -> None:
        """``collection``: what the images have in common, such as their folder; it names the cache's folder."""
        self.root, self.collection = cache_root() if root is None else root, collection
        name = f"{FORMAT}\0{collection}".encode("utf-8", "surrogateescape")
        self.folder = self.root / hashlib.blake2b(name, digest_size=8).hexdigest()
        self.closed_because: str | None = None
        """The reason if nothing more is stored."""
        self._segments: list[Segment] = []
        self._starts = [0]  # per segment: the place of its first record among those of all; then their number
        self._records = np.empty(0, RECORD)
        self._states = np.empty(0, np.uint8)  # per record: whether its checksum holds
        self._order = np.empty(0, np.int64)  # the places of the records that can be right, in the order of their keys
        self._keys = np.empty(0, np.uint64)
        self._files: dict[Path, FileIO] = {}
        self._writer: SegmentWriter | None = None
        self._room = self._allowance = 0
        self._claim: int | None = None
        try:
            self._claim = claim_collection(self.folder, collection)
            self._measure(0)
        except OSError as error:
            self._stop(error)
        self.refresh()

    def refresh(self) -> bool:
        """Read the records that this process or others have added since the last time; false if there are none."""
        self.flush()
        segments = list_segments(self.folder)
        if self._writer is not None and self._writer.records not in {segment.records for segment in segments}:
            self._end_segment()  # it was deleted: images added to it would never be found
        if segments == self._segments:
            return False
        earlier = zip(self._segments, pairwise(self._starts), strict=True)
        before = {segment.records: (segment, self._states[start:end]) for segment, (start, end) in earlier}
        tables, possible = zip((np.empty(0, RECORD), np.empty(0, bool)), *map(read_records, segments), strict=True)
        self._segments, self._starts = segments, list(accumulate(map(len, tables)))
        self._records = np.concatenate(tables)
        self._states = np.full(len(self._records), UNKNOWN, np.uint8)
        for segment, (start, end) in zip(segments, pairwise(self._starts), strict=True):
            old, states = before.get(segment.records, (segment, self._states[:0]))
            if segment.records_size >= old.records_size and segment.pixels_size >= old.pixels_size:
                self._states[start:end][: len(states)] = states[: end - start]
        rows = np.flatnonzero(np.concatenate(possible))
        self._order = rows[self._records["key"][rows].argsort(kind="stable")]
        self._keys = self._records["key"][self._order]
        return True

    def find(self, kind: str, paths: Sequence[str]) -> list[int]:
        """The place of each image, as a number for :meth:`read`; -1 if it is not stored or the file has changed.

        ``kind``: how the image was decoded and made smaller: everything that its pixels depend on besides the file.
        """
        if not len(self._keys):
            return [-1] * len(paths)
        keys = np.array([_key(kind, path) for path in paths], np.uint64)
        first, last = (np.searchsorted(self._keys, keys, side).tolist() for side in ("left", "right"))
        return [self._newest(path, self._order[low:high]) for path, low, high in zip(paths, first, last, strict=True)]

    def read(self, slot: int, pixels: np.ndarray) -> bool:
        """Read an image into ``pixels``, uint8 and of its size; false if it is damaged and must be decoded again.

        The checksum is compared when a process first reads an image.
        """
        record, state = self._records[slot], self._states[slot]
        segment = self._segments[bisect(self._starts, slot) - 1]
        good = bool(state != BAD) and self._read_at(segment.pixels, int(record["start"]), pixels)
        if good and state == UNKNOWN:
            good = bool(checksum(record, pixels) == record["checksum"])
        self._states[slot] = GOOD if good else BAD
        return good

    def verify(self, slot: int) -> bool:
        """Whether an image is undamaged, as far as this process knows; reads it if it has not been read yet."""
        return bool(self._states[slot] == GOOD) or self.load(slot) is not None

    def load(self, slot: int) -> DecodedImage | None:
        """An image with memory of its own; None if it is damaged."""
        record = self._records[slot]
        pixels = np.empty((record["height"], record["width"], 3), np.uint8)
        if not self.read(slot, pixels):
            return None
        original = int(record["original_width"]), int(record["original_height"])
        return DecodedImage(pixels, original, (int(record["bytes"]), int(record["changed"])))

    def sizes(self, slots: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Width and height of each image as stored, and of the original: n×2 each."""
        records = self._records[np.asarray(slots, np.int64)]
        stored = np.stack([records["width"], records["height"]], 1).astype(np.int64)
        return stored, np.stack([records["original_width"], records["original_height"]], 1).astype(np.int64)

    def add(self, kind: str, path: str, image: DecodedImage) -> None:
        """Store an image, unless the cache is full. It is found after the next :meth:`refresh`."""
        if self.closed_because is not None:
            return
        need = image.pixels.nbytes
        try:
            if need > self._allowance:
                self._measure(need)
            if need > self._room:
                full = free_space(self.root) - FREE < need
                limit = f"it has reached its limit ({CACHE_LIMIT} sets another)"
                self.closed_because = f"{self.root} is on a disk that is nearly full" if full else limit
                return
            if self._writer is not None and self._writer.is_cut():
                self._writer.drop()
                self._writer = None
            self._writer = self._writer or self._begin_segment()
            self._writer.add(_key(kind, path), image)
            self._room -= need + RECORD.itemsize
            self._allowance -= need
        except OSError as error:
            self._stop(error)

    def flush(self) -> None:
        """Let other processes find the images that were added."""
        try:
            if self._writer is not None:
                self._writer.flush()
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        self.flush()
        self._end_segment()
        self._close_files()
        if self._claim is not None:
            os.close(self._claim)
        self._claim = None

    def _newest(self, path: str, slots: np.ndarray) -> int:
        """The last of these places that has the image of the file as it is now; -1 if none has."""
        now = stamp(path) if len(slots) else None
        for slot in map(int, reversed(slots)):
            if self._states[slot] != BAD and (self._records["bytes"][slot], self._records["changed"][slot]) == now:
                return slot
        return -1

    def _read_at(self, path: Path, start: int, pixels: np.ndarray) -> bool:
        """Read bytes of a file; false if there are fewer. With mapped memory, missing bytes would end the process."""
        try:
            if path not in self._files:
                if len(self._files) >= OPEN_FILES:
                    self._close_files()
                self._files[path] = path.open("rb", buffering=0)
            self._files[path].seek(start)
            return self._files[path].readinto(pixels.data.cast("B")) == pixels.nbytes
        except OSError:
            return False

    def _measure(self, need: int) -> None:
        """Find out how much may be stored: other processes and runs share the limit."""
        if self._writer is not None:
            self._writer.flush()
        self._room = make_room(self.root, self.folder, need)
        self._allowance = min(MEASURED_EVERY, self._room // 8)

    def _begin_segment(self) -> SegmentWriter:
        if not self.folder.is_dir():
            if self._claim is not None:
                os.close(self._claim)
            self._claim = claim_collection(self.folder, self.collection)
        return SegmentWriter(self.folder, len(self._segments))

    def _end_segment(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _stop(self, error: OSError) -> None:
        self.closed_because = f"{self.folder}: {error.strerror or error}"
        self._end_segment()


def _key(kind: str, path: str) -> int:
    name = f"{kind}\0{path}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
