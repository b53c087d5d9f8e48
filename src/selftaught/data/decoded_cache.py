"""Decoded images on the disk: each file is decoded once, and found again by its path, size and time of change.

A collection of images has a folder of its own. It holds segments: a file of pixels and a file of fixed-size records.
A process appends only to a segment that it began itself, pixels first, so that no lock is needed and a kill at any
moment leaves nothing worse than pixels without a record. Nothing read is trusted: a checksum covers the record and its
pixels, and an image that is damaged, cut off or missing counts as not stored.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedWriter, FileIO
from pathlib import Path

import numpy as np

from selftaught.data.cache_segments import RECORD, checksum, possible_records, read_records, segment_sizes
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

    def __init__(self, collection: str, root: Path | None = None, limit: int | None = None) -> None:
        """``collection``: what the images have in common, such as their folder; it names the cache's folder."""
        self.root, self.collection, self.limit = cache_root() if root is None else root, collection, limit
        name = f"{FORMAT}\0{collection}".encode("utf-8", "surrogateescape")
        self.folder = self.root / hashlib.blake2b(name, digest_size=8).hexdigest()
        self.closed_because: str | None = None
        """The reason if nothing more is stored."""
        self._sizes: list[tuple[Path, int, int]] = []  # per segment: its index, bytes of the index, bytes of pixels
        self._states: dict[Path, np.ndarray] = {}  # per segment: whether each record's checksum holds
        self._files: dict[Path, FileIO] = {}
        self._records = np.empty(0, RECORD)
        self._places = np.empty((0, 2), np.int32)  # per record: its segment, and its row there
        self._writing: tuple[BufferedWriter, BufferedWriter] | None = None
        self._waiting: list[bytes] = []
        self._written = self._room = self._allowance = 0
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
        before = {index: (records, pixels) for index, records, pixels in self._sizes}
        listed: list[Path] = []
        with suppress(OSError):  # a folder that cannot be read has none
            listed = sorted(self.folder.glob("*.index"))
        sizes = [(index, *found) for index in listed if (found := segment_sizes(index))]
        if self._writing is not None and Path(self._writing[1].name) not in {index for index, *_ in sizes}:
            self._end_segment()  # it was deleted: images added to it would never be found
        if sizes == self._sizes:
            return False
        tables, places, kept = [np.empty(0, RECORD)], [np.empty((0, 2), np.int32)], {}
        for number, (index, records, pixels) in enumerate(sizes):
            table = read_records(index)
            rows = np.flatnonzero(possible_records(table, pixels))
            states = np.zeros(len(table), np.uint8)
            if index in before and records >= before[index][0] and pixels >= before[index][1]:
                known = self._states[index][: len(table)]
                states[: len(known)] = known
            kept[index] = states
            tables.append(table[rows])
            places.append(np.stack([np.full(len(rows), number), rows], 1).astype(np.int32))
        self._sizes, self._states = sizes, kept
        table = np.concatenate(tables)
        order = table["key"].argsort(kind="stable")
        self._records, self._places = table[order], np.concatenate(places)[order]
        return True

    def find(self, kind: str, paths: Sequence[str]) -> list[int]:
        """The place of each image, as a number for :meth:`read`; -1 if it is not stored or the file has changed.

        ``kind``: how the image was decoded and made smaller: everything that its pixels depend on besides the file.
        """
        if not len(self._records):
            return [-1] * len(paths)
        keys = np.array([_key(kind, path) for path in paths], np.uint64)
        first, last = (np.searchsorted(self._records["key"], keys, side) for side in ("left", "right"))
        places = zip(paths, first.tolist(), last.tolist(), strict=True)
        return [self._newest(path, low, high) for path, low, high in places]

    def read(self, slot: int, pixels: np.ndarray) -> bool:
        """Read an image into ``pixels``, uint8 and of its size; false if it is damaged and must be decoded again.

        The checksum is compared when a process first reads an image.
        """
        record = self._records[slot]
        segment, row = self._places[slot].tolist()
        index = self._sizes[segment][0]
        states = self._states[index]
        good = states[row] != BAD and self._read_at(index.with_suffix(".pixels"), int(record["start"]), pixels)
        if good and states[row] == UNKNOWN:
            good = checksum(record, pixels) == record["checksum"]
        states[row] = GOOD if good else BAD
        return good

    def verify(self, slot: int) -> bool:
        """Whether an image is undamaged, as far as this process knows; reads it if it has not been read yet."""
        segment, row = self._places[slot].tolist()
        return bool(self._states[self._sizes[segment][0]][row] == GOOD) or self.load(slot) is not None

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
        pixels = np.ascontiguousarray(image.pixels)
        height, width = pixels.shape[:2]
        try:
            if pixels.nbytes > self._allowance:
                self._measure(pixels.nbytes)
            if pixels.nbytes > self._room:
                full = free_space(self.root) - FREE < pixels.nbytes
                limit = f"it has reached its limit ({CACHE_LIMIT} sets another)"
                self.closed_because = f"{self.root} is on a disk that is nearly full" if full else limit
                return
            self._drop_cut_segment()
            self._writing = self._writing or self._begin_segment()
            place = (self._written, width, height, *image.original)
            record = np.array((_key(kind, path), *image.stamp, *place, 0), RECORD)
            record["checksum"] = checksum(record, pixels)
            self._writing[0].write(pixels.data)
            self._written += pixels.nbytes
            self._room -= pixels.nbytes + RECORD.itemsize
            self._allowance -= pixels.nbytes
            self._waiting.append(record.tobytes())
            if len(self._waiting) >= 256:
                self.flush()
        except OSError as error:
            self._stop(error)

    def flush(self) -> None:
        """Let other processes find the images that were added."""
        if self._writing is None:
            return
        data, index = self._writing
        try:
            data.flush()
            index.write(b"".join(self._waiting))
            index.flush()
            self._waiting.clear()
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        self.flush()
        self._end_segment()
        self._close_files()
        if self._claim is not None:
            os.close(self._claim)
        self._claim = None

    def _newest(self, path: str, low: int, high: int) -> int:
        if low == high:
            return -1
        now = stamp(path)
        for slot in range(high - 1, low - 1, -1):
            segment, row = self._places[slot].tolist()
            if self._states[self._sizes[segment][0]][row] == BAD:
                continue
            if (self._records["bytes"][slot], self._records["changed"][slot]) == now:
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
        if self._writing is not None:
            self._writing[0].flush()
        self._room = make_room(self.root, self.folder, need, self.limit)
        self._allowance = min(MEASURED_EVERY, self._room // 8)

    def _begin_segment(self) -> tuple[BufferedWriter, BufferedWriter]:
        if not self.folder.is_dir():
            if self._claim is not None:
                os.close(self._claim)
            self._claim = claim_collection(self.folder, self.collection)
        self._written = 0
        name = f"{len(self._sizes):04d}-{os.getpid()}-{os.urandom(3).hex()}"
        return (self.folder / f"{name}.pixels").open("wb"), (self.folder / f"{name}.index").open("wb")

    def _drop_cut_segment(self) -> None:
        """Give up a segment that was cut: pixels written beyond its end would leave a gap where others were."""
        if self._writing is None or os.fstat(self._writing[0].fileno()).st_size >= self._writing[0].raw.tell():
            return
        cut = self._writing[0].name
        self._end_segment()
        os.truncate(cut, 0)

    def _end_segment(self) -> None:
        with suppress(OSError):
            for file in self._writing or ():
                file.close()
        self._writing = None
        self._waiting.clear()

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
