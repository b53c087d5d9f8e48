"""Vectors of finished batches, in a file beside the output, so that no work is done twice."""

import hashlib
import io
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.vectors import Stamp, partial_file

MAGIC = b"selftaught embed 2\n"
DIGEST = hashlib.sha256().digest_size
SAVE_INTERVAL = 5.0
"""Seconds of work that a loss of power may cost."""


class Known(NamedTuple):
    """An image's file as it was, and its vector, or the reason why it has none."""

    stamp: Stamp
    vector: np.ndarray | None
    reason: str = ""


class VectorLog:
    """The finished part of a collection, in ``OUT.partial``.

    Batches are appended, each with its length and a digest. After a kill at any moment, or damage anywhere, work goes
    on from the last good batch. A file that is not such a log is never touched.
    """

    def __init__(self, out: Path, *, model: str, root: str, dim: int) -> None:
        self.path = partial_file(out)
        self.known: dict[str, Known] = {}
        """What is known, by the image's name."""
        self._dim = dim
        about = {"model": model, "root": root, "dim": dim}
        try:
            if self.path.exists() and not self.path.is_file():  # reading a pipe might never end
                raise self._foreign()
            self._file = self.path.open("r+b" if self.path.exists() else "x+b", buffering=0)
            end, self.started_over = self._read(about)
            self._file.truncate(end)
            self._file.seek(end)
            if not end:
                self._append(about, b"", MAGIC)
            self.save()
        except OSError as error:
            raise self._failed(error) from None

    def add(self, files: list[tuple[str, Stamp]], vectors: Tensor, failures: list[tuple[int, str]]) -> None:
        """Append a batch: its vectors, and (position in the batch, reason) for images without one."""
        rows = vectors.numpy().astype("<f4")
        try:
            self._append({"files": files, "failures": failures}, rows.tobytes())
            if time.monotonic() - self._saved >= SAVE_INTERVAL:
                self.save()
        except OSError as error:
            raise self._failed(error) from None
        self._take(files, rows, failures)

    def save(self) -> None:
        """Write all that was added to the disk, so that it survives a power failure."""
        os.fsync(self._file.fileno())
        self._saved = time.monotonic()

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def _append(self, about: dict[str, Any], rows: bytes, before: bytes = b"") -> None:
        payload = json.dumps(about).encode() + b"\n" + rows
        head = before + len(payload).to_bytes(8, "little") + hashlib.sha256(payload).digest()
        content = memoryview(head + payload)
        while content:  # a nearly full disk may take only a part
            content = content[self._file.write(content) :]

    def _read(self, about: dict[str, Any]) -> tuple[int, bool]:
        """Read the log; returns where it ends, and whether it is useless because it is of another model or folder."""
        start = self._file.read(len(MAGIC))
        if not start:
            return 0, False
        if start != MAGIC:
            raise self._foreign()
        header = _next_record(self._file)
        if header is None or header[0] != about:
            return 0, True
        end = self._file.tell()
        while (record := _next_record(self._file)) is not None:
            try:
                files = [(str(name), (int(size), int(changed))) for name, (size, changed) in record[0]["files"]]
                failures = [(int(position), str(reason)) for position, reason in record[0]["failures"]]
                rows = np.frombuffer(record[1], "<f4").reshape(len(files) - len(failures), self._dim)
                self._take(files, rows, failures)
            except (KeyError, TypeError, ValueError):
                break
            end = self._file.tell()
        return end, False

    def _take(self, files: list[tuple[str, Stamp]], rows: np.ndarray, failures: list[tuple[int, str]]) -> None:
        reasons = dict(failures)
        vectors = iter(rows)
        for position, (name, stamp) in enumerate(files):
            vector = None if position in reasons else next(vectors)
            self.known[name] = Known(stamp, vector, reasons.get(position, ""))

    def _foreign(self) -> UsageError:
        return UsageError(
            f"{printable(self.path)} is needed for unfinished work, but was not written by selftaught embed: "
            "move it away, or give another --out"
        )

    def _failed(self, error: OSError) -> SelftaughtError:
        return SelftaughtError(
            f"cannot write {printable(self.path)}: {error.strerror or error}; what is done is kept, "
            "so fix that and give the same command again"
        )


def _next_record(file: io.FileIO) -> tuple[dict[str, Any], bytes] | None:
    """The next record, if it is whole."""
    head = file.read(8 + DIGEST)
    size = int.from_bytes(head[:8], "little")
    if len(head) < 8 + DIGEST or size > os.fstat(file.fileno()).st_size:
        return None
    payload = file.read(size)
    if hashlib.sha256(payload).digest() != head[8:]:
        return None
    about, _, rows = payload.partition(b"\n")
    try:
        content = json.loads(about)
    except (ValueError, RecursionError):
        return None
    return (content, rows) if isinstance(content, dict) else None
