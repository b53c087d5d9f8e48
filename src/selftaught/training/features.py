"""Features computed once and kept on the disk, block by block: whatever ends a run, finished blocks stay."""

import os
import shutil
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from selftaught.errors import SelftaughtError, printable
from selftaught.files import write_atomically
from selftaught.parallel import rank

FEATURES = "features"
"""The folder in a run's folder where they are kept until it is finished."""
BLOCK = 64
"""Images whose features are kept together; what is under way of a block is lost by a kill."""


def remove_features(run: Path) -> None:
    """Delete what a run has kept: nothing that comes after training needs it, and it can be larger than the images."""
    if rank() == 0:
        shutil.rmtree(run / FEATURES, ignore_errors=True)


class KeptFeatures:
    """images×views×features in float32 as one .npy file, and a file beside it with one byte for each finished block.

    Several processes may write, each its own blocks.
    """

    def __init__(self, file: Path, images: int, views: int, features: int) -> None:
        self.file, self.shape = file, (images, views, features)
        self.done = file.with_suffix(".done")

    def prepare(self) -> list[int]:
        """The blocks that are not finished, after making the files if they are not there or not of this shape."""
        blocks = -(-self.shape[0] // BLOCK)
        try:
            flags = self.done.read_bytes()
            if len(flags) == blocks and self.array().shape == self.shape:
                return [block for block, flag in enumerate(flags) if not flag]
        except (OSError, ValueError):  # not there, or cut off
            pass
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.done.unlink(missing_ok=True)
            open_memmap(self.file, "w+", np.float32, self.shape)
        except OSError as error:
            raise self._not_written(error) from None
        write_atomically(self.done, bytes(blocks))
        return list(range(blocks))

    def images(self, block: int) -> range:
        """The images of a block."""
        return range(block * BLOCK, min((block + 1) * BLOCK, self.shape[0]))

    def write(self, block: int, features: np.ndarray) -> None:
        """Keep a block; through the file, for memory mapped to a full disk would kill the process."""
        row = 4 * self.shape[1] * self.shape[2]
        start = self.file.stat().st_size - self.shape[0] * row + block * BLOCK * row
        try:
            _write_at(self.file, start, np.ascontiguousarray(features, np.float32).tobytes())
            _write_at(self.done, block, b"\1")
        except OSError as error:
            raise self._not_written(error) from None

    def array(self) -> np.ndarray:
        """images×views×features, read from the disk where it is looked at."""
        return np.asarray(np.load(self.file, mmap_mode="r"))

    def _not_written(self, error: OSError) -> SelftaughtError:
        size = 4 * np.prod(self.shape, dtype=np.int64) / 2**20
        return SelftaughtError(
            f"cannot keep the features in {printable(self.file)}: {error.strerror or error}; they "
            f"take {size:.0f} MiB there"
        )


def _write_at(file: Path, start: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
