"""The segments of a collection in the cache: a file of pixels each, and a file of records that say what they are."""

import os
import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from selftaught.data.decoded_images import DecodedImage

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
        ("checksum", "<u4"),
    ]
)
LONGEST_SIDE = 2**20


class Segment(NamedTuple):
    """The two files of a segment, and their sizes in bytes."""

    records: Path
    pixels: Path
    records_size: int
    pixels_size: int


def list_segments(folder: Path) -> list[Segment]:
    """The segments of a collection, sorted by name. What cannot be read is not among them."""
    segments = []
    with suppress(OSError):
        for index in sorted(folder.glob("*.index")):
            files = index, index.with_suffix(".pixels")
            with suppress(OSError):
                found = [file.stat() for file in files]
                if all(stat.S_ISREG(status.st_mode) for status in found):
                    segments.append(Segment(*files, found[0].st_size, found[1].st_size))
    return segments


def read_records(segment: Segment) -> tuple[np.ndarray, np.ndarray]:
    """The complete records of a segment, and which of them can describe images within its pixels."""
    content = b""
    with suppress(OSError):
        content = segment.records.read_bytes()
    records = np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)
    possible: np.ndarray = records["start"] >= 0
    for name in ("width", "height", "original_width", "original_height"):
        possible &= records[name] > 0
    possible &= (records["width"] <= LONGEST_SIDE) & (records["height"] <= LONGEST_SIDE)
    possible &= 3 * records["width"].astype(np.int64) * records["height"] <= segment.pixels_size - records["start"]
    return records, possible


def checksum(record: np.ndarray, pixels: np.ndarray) -> int:
    """The checksum of an image's record, without its last field, and of its pixels."""
    return zlib.crc32(pixels.data, zlib.crc32(record.tobytes()[:-4]))


class SegmentWriter:
    """A new segment: pixels are written before their records, so that a kill leaves no record without them."""

    def __init__(self, folder: Path, number: int) -> None:
        self.records = folder / f"{number:04d}-{os.getpid()}-{os.urandom(3).hex()}.index"
        self._pixels, self._index = self.records.with_suffix(".pixels").open("wb"), self.records.open("wb")
        self._waiting: list[bytes] = []

    def is_cut(self) -> bool:
        """Whether the file of pixels was cut: writing beyond its end would leave a gap where others were."""
        return os.fstat(self._pixels.fileno()).st_size < self._pixels.raw.tell()

    def add(self, key: int, image: DecodedImage) -> None:
        pixels = np.ascontiguousarray(image.pixels)
        height, width = pixels.shape[:2]
        record = np.array((key, *image.stamp, self._pixels.tell(), width, height, *image.original, 0), RECORD)
        record["checksum"] = checksum(record, pixels)
        self._pixels.write(pixels.data)
        self._waiting.append(record.tobytes())
        if len(self._waiting) >= 256:
            self.flush()

    def flush(self) -> None:
        self._pixels.flush()
        self._index.write(b"".join(self._waiting))
        self._index.flush()
        self._waiting.clear()

    def close(self) -> None:
        """Close the files; images that were added after the last :meth:`flush` are lost."""
        with suppress(OSError):
            self._pixels.close()
            self._index.close()

    def drop(self) -> None:
        """Give up all images of the segment."""
        self.close()
        os.truncate(self.records.with_suffix(".pixels"), 0)
