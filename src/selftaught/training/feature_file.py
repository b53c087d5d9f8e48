"""Features computed once and kept on the disk, block by block: finished blocks survive any end of a run."""

import os
import zlib
from pathlib import Path

import numpy as np

from selftaught.errors import SelftaughtError, printable
from selftaught.files import read_file, write_atomically

BLOCK = 64
"""Images whose features are written together; a kill loses only the block under way."""


class FeatureFile:
    """images×views×features as plain float32 numbers, and a file beside them with a checksum of each finished block.

    Several processes may write, each its own blocks.
    """

    def __init__(self, file: Path, images: int, views: int, features: int) -> None:
        self.file, self.shape = file, (images, views, features)
        self.sums = file.with_suffix(".sums")
        self.bytes = 4 * images * views * features

    def prepare(self) -> list[int]:
        """The blocks to compute: unfinished ones, and those that have changed since they were written."""
        blocks = range(-(-self.shape[0] // BLOCK))
        try:
            sums = np.frombuffer(read_file(self.sums), "<u4")
            if len(sums) == len(blocks) and self.file.is_file() and self.file.stat().st_size == self.bytes:
                kept = self.array()
                return [
                    block for block in blocks if sums[block] != _checksum(kept[block * BLOCK : (block + 1) * BLOCK])
                ]
        except (SelftaughtError, OSError, ValueError):  # missing or cut off
            pass
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.sums.unlink(missing_ok=True)
            self.file.unlink(missing_ok=True)
            with self.file.open("wb") as file:
                file.truncate(self.bytes)
        except OSError as error:
            raise self._not_written(error) from None
        write_atomically(self.sums, bytes(4 * len(blocks)))
        return list(blocks)

    def images(self, block: int) -> range:
        """The images of a block."""
        return range(block * BLOCK, min((block + 1) * BLOCK, self.shape[0]))

    def write(self, block: int, features: np.ndarray) -> None:
        """Write a block. This writes to the file, since on a full disk writing to mapped memory kills the process."""
        rows = np.ascontiguousarray(features, "<f4")
        try:
            _write_at(self.file, block * BLOCK * rows[0].nbytes, rows.tobytes())
            _write_at(self.sums, 4 * block, _checksum(rows).to_bytes(4, "little"))
        except OSError as error:
            raise self._not_written(error) from None

    def array(self) -> np.ndarray:
        """images×views×features, read from the disk only where they are used."""
        return np.memmap(self.file, "<f4", "r", shape=self.shape)

    def _not_written(self, error: OSError) -> SelftaughtError:
        return SelftaughtError(
            f"cannot keep the features in {printable(self.file)}: {error.strerror or error}; "
            f"they take {self.bytes / 2**20:.0f} MiB there"
        )


def _checksum(rows: np.ndarray) -> int:
    """A checksum that is never 0, since 0 marks an unfinished block."""
    return zlib.crc32(np.ascontiguousarray(rows).data) or 1


def _write_at(file: Path, start: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
