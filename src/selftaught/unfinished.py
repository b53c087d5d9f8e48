"""Vectors of the batches that are done, beside the file they are meant for, so that no work is done twice."""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selftaught.data import ImageFolder, identity
from selftaught.errors import ImageError, SelftaughtError, printable
from selftaught.files import write_atomically

FORMAT = 1
SAVE_INTERVAL = 5.0
"""Seconds of work that a kill may cost."""


def images_digest(images: ImageFolder) -> str:
    """A fingerprint of a list of images: their names, sizes and times of change, in order."""
    digest = hashlib.sha256()
    for index, file in enumerate(images.files):
        try:
            size, changed = identity(images.path(index))
        except ImageError:
            size = changed = -1
        digest.update(f"{size} {changed} {file}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class Unfinished:
    """What is known so far of the vectors of a list of images, on the disk.

    Float32 rows are appended to ``OUT.partial``; how many of them count is said in ``OUT.partial.json``, which is
    written after them. A kill at any moment leaves a beginning that can be gone on from.
    """

    def __init__(self, out: Path, *, model: str, images: str, dim: int, batch_size: int) -> None:
        self.path, self._notes = (out.with_name(f"{out.name}.partial{ending}") for ending in ("", ".json"))
        self._dim = dim
        self._about: dict[str, str | int] = {
            "format": FORMAT,
            "model": model,
            "images": images,
            "dim": dim,
            "batch_size": batch_size,
        }
        self.done, self.rows = 0, 0
        """Images looked at, and vectors of them."""
        self.failures: list[tuple[int, str]] = []
        """(which image, why) for those without a vector."""
        self.given_up = self._notes.exists() and not self._go_on()
        """Whether something was found that is of other images or another model, or damaged."""
        try:
            if not self.done:
                self._notes.unlink(missing_ok=True)
            self._file = self.path.open("r+b" if self.done else "wb", buffering=0)
            self._file.truncate(self.rows * dim * 4)
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise self._failed(error) from None
        self._saved = time.monotonic()

    def add(self, vectors: Tensor, failures: list[tuple[int, str]]) -> None:
        """The next batch: its vectors, and (which of the batch, why) for images without one."""
        content = memoryview(vectors.numpy().astype("<f4").tobytes())
        try:
            while content:  # a nearly full disk takes a part
                content = content[self._file.write(content) :]
        except OSError as error:
            raise self._failed(error) from None
        self.failures += [(self.done + position, reason) for position, reason in failures]
        self.done += len(vectors) + len(failures)
        self.rows += len(vectors)
        if time.monotonic() - self._saved >= SAVE_INTERVAL:
            self.save()

    def save(self) -> None:
        """Make all that was added last."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from None
        notes = self._about | {"done": self.done, "rows": self.rows, "failures": self.failures}
        write_atomically(self._notes, json.dumps(notes) + "\n")
        self._saved = time.monotonic()

    def vectors(self) -> Tensor:
        """All vectors, rows×dim."""
        return torch.from_numpy(np.fromfile(self.path, "<f4").reshape(self.rows, self._dim))

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self._notes.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def _go_on(self) -> bool:
        """Take up what is there, if it is of the same images and the same model."""
        try:
            notes: dict[str, Any] = json.loads(self._notes.read_text("utf-8"))
            if any(notes[name] != value for name, value in self._about.items()):
                return False
            done, rows = int(notes["done"]), int(notes["rows"])
            failures = [(int(position), str(reason)) for position, reason in notes["failures"]]
            if rows + len(failures) != done or self.path.stat().st_size < rows * notes["dim"] * 4:
                return False
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self.done, self.rows, self.failures = done, rows, failures
        return True

    def _failed(self, error: OSError) -> SelftaughtError:
        return SelftaughtError(
            f"cannot write {printable(self.path)}: {error.strerror or error}; what is done is kept, "
            "so mend it and give the same command again"
        )
