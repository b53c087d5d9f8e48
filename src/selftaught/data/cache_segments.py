"""The segments of a collection in the cache: their records, and a check whether these can be right."""

import stat
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

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


def read_records(index: Path) -> np.ndarray:
    """The complete records of a segment."""
    try:
        content = index.read_bytes()
    except OSError:
        content = b""
    return np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)


def possible_records(records: np.ndarray, size: int) -> np.ndarray:
    """Which records can describe images within ``size`` bytes of pixels."""
    possible: np.ndarray = records["start"] >= 0
    for name in ("width", "height", "original_width", "original_height"):
        possible &= records[name] > 0
    possible &= (records["width"] <= LONGEST_SIDE) & (records["height"] <= LONGEST_SIDE)
    possible &= 3 * records["width"].astype(np.int64) * records["height"] <= size - records["start"]
    return possible


def checksum(record: np.ndarray, pixels: np.ndarray) -> int:
    """The checksum of an image's record, without its last field, and of its pixels."""
    return zlib.crc32(pixels.data, zlib.crc32(record.tobytes()[:-4]))
