"""Vectors as they are made, batch by batch, in a file that survives a kill at any moment: no work is done twice."""

import hashlib
import json
import mmap
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from selftaught.data import Failures, Stamp
from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import open_regular

MAGIC = b"selftaught embed 2\n"
HEAD = 8 + hashlib.sha256().digest_size
"""Bytes before each batch: its length and its digest."""
SAVE_INTERVAL = 5.0
"""Seconds of work that a loss of power may cost."""


class Known(NamedTuple):
    """An image's file as it was, and its vector, or the reason why it has none."""

    stamp: Stamp
    vector: np.ndarray | None
    reason: str = ""


class LoggedBatch(NamedTuple):
    """Files with their vectors, in order; (position, reason) for those without one."""

    files: list[tuple[str, Stamp]]
    vectors: np.ndarray
    failures: Failures

    def known(self) -> dict[str, Known]:
        """The same by the file's name."""
        reasons, vectors = dict(self.failures), iter(self.vectors)
        return {
            name: Known(stamp, None, reasons[position]) if position in reasons else Known(stamp, next(vectors))
            for position, (name, stamp) in enumerate(self.files)
        }


class VectorLog:
    """A file that batches are appended to, each with its length and a digest.

    After a kill at any moment, or damage anywhere, work goes on from the last good batch. A file that is no such log,
    or is about something else, is never touched.
    """

    def __init__(self, path: Path, *, model: str, root: str, dim: int) -> None:
        self.path, about = path, {"model": model, "root": root, "dim": dim}
        self.batches: list[LoggedBatch]
        """Those that were there when the log was opened."""
        try:
            if not path.exists():
                path.touch()
            found = read_log(path, about) if path.is_file() else None  # reading a pipe might never end
            if found is None:
                raise UsageError(
                    f"{printable(path)} is needed for unfinished work, but was not written by selftaught embed: "
                    "move it away, or give another --out"
                )
            self.batches, end = found
            if end < 0:
                raise UsageError(
                    f"{printable(path)} is unfinished work with another folder or model, or with another --size, "
                    "--mirror, --scales or --whiten: give what it was begun with, or another --out, or delete the file"
                )
            self._file = path.open("r+b", buffering=0)
            self._file.truncate(end)
            self._file.seek(end)
            if not end:
                self._append(about, b"", MAGIC)
            self.save()
        except OSError as error:
            raise self._failed(error) from None

    def add(self, batch: LoggedBatch) -> None:
        try:
            self._append({"files": batch.files, "failures": batch.failures}, batch.vectors.astype("<f4").tobytes())
            if time.monotonic() - self._saved >= SAVE_INTERVAL:
                self.save()
        except OSError as error:
            raise self._failed(error) from None

    def save(self) -> None:
        """Write all that was added to the disk, so that it survives a power failure."""
        os.fsync(self._file.fileno())
        self._saved = time.monotonic()

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def _append(self, notes: dict[str, Any], rows: bytes, before: bytes = b"") -> None:
        payload = json.dumps(notes).encode() + b"\n" + rows
        head = before + len(payload).to_bytes(8, "little") + hashlib.sha256(payload).digest()
        content = memoryview(head + payload)
        while content:  # a nearly full disk may take only a part
            content = content[self._file.write(content) :]

    def _failed(self, error: OSError) -> SelftaughtError:
        reason = error.strerror or error
        return SelftaughtError(f"cannot write {printable(self.path)}: {reason}; what is done is kept, so fix that")


def read_log(path: Path, about: dict[str, Any], *, mapped: bool = False) -> tuple[list[LoggedBatch], int] | None:
    """The good batches of a log, and where they end, -1 if it is about something else; None if the file is no log.

    ``mapped``: the vectors stay on the disk and are read where they are used.
    """
    batches: list[LoggedBatch] = []
    with open_regular(path) as file:
        large = mapped and os.fstat(file.fileno()).st_size > 0
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if large else file.read()
    if content[: len(MAGIC)] != MAGIC:
        return None if len(content) else ([], 0)
    view, end, is_header = memoryview(content), len(MAGIC), True
    while len(content) >= (start := end + HEAD):
        stop = start + int.from_bytes(view[end : end + 8], "little")
        if stop > len(content) or hashlib.sha256(view[start:stop]).digest() != view[end + 8 : start]:
            break
        line = content.find(b"\n", start, stop)
        try:
            notes = json.loads(content[start:line])
            if is_header and notes != about:
                return [], -1
            if not is_header:
                batches.append(_read_batch(notes, np.frombuffer(view[line + 1 : stop], "<f4"), about["dim"]))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            break
        end, is_header = stop, False
    return batches, 0 if is_header else end


def _read_batch(notes: dict[str, Any], numbers: np.ndarray, dim: int) -> LoggedBatch:
    files = [(str(name), (int(size), int(changed))) for name, (size, changed) in notes["files"]]
    failures = [(int(position), str(reason)) for position, reason in notes["failures"]]
    readable = set(range(len(files))) - {position for position, _ in failures}
    return LoggedBatch(files, numbers.reshape(len(readable), dim), failures)
