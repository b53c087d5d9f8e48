"""Files that are written whole or not at all, and locks."""

import csv
import io
import json
import mmap
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from selftaught.errors import SelftaughtError, UsageError, printable

NO_TEXT = re.compile(r"\\udc(5c|[89a-f][0-9a-f])")
"""A byte of a path that is no Unicode, as it is written; and a backslash before what would look like one."""
TEMPORARY, LOCK = ".{name:.200}.{process}.tmp", ".lock"
PATIENCE = 0.1
"""Seconds after which a lock counts as held: until then, its last holder may be deleting its file."""


def plain_path(path: str | os.PathLike[str]) -> Path:
    """The one form of a path: absolute, without dots, links as they are."""
    return Path(os.path.abspath(path))  # noqa: PTH100, which would follow links


def as_text(path: str) -> str:
    """A path as valid Unicode, which databases and Parquet files need.

    Example:
        >>> as_path(as_text("caf\\udce9.jpg")) == "caf\\udce9.jpg"
        True
    """
    return NO_TEXT.sub(r"\\udc5cudc\1", path).encode("utf-8", "backslashreplace").decode("utf-8")


def as_path(text: str) -> str:
    """The path that :func:`as_text` was given."""
    return NO_TEXT.sub(lambda found: "\\" if found[1] == "5c" else chr(0xDC00 + int(found[1], 16)), text)


def check_output(path: Path, own: bytes, option: str = "--out") -> None:
    """Raise an error, before the work for it begins, if a file cannot be written there, or would replace a foreign one.

    Args:
        own: a regular expression that is found in every file of this kind that the command has written.
        option: what names the file.
    """
    if path.is_dir():
        raise UsageError(f"{printable(path)} is a folder; give the file to write")
    folder = plain_path(path).parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {printable(folder)} to write {printable(path.name)} into")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"the folder {printable(folder)} cannot be written to")
    if path.exists() and not _holds(path, own):
        raise UsageError(
            f"{printable(path)} would be replaced, but was not written by this command, or by an older version of it: "
            f"give another {option}, or move the file away"
        )


def write_atomically(
    path: Path, content: bytes | memoryview | str | Callable[[BinaryIO], object], *, lasting: bool = True
) -> None:
    """Write beside the target, flush to the disk, then rename over it: a reader sees the old file or the new one.

    Flushing takes a while. A file that may be lost when the power fails, such as a log of the last seconds, need not
    be ``lasting``.
    """
    temporary = path.with_name(TEMPORARY.format(name=path.name, process=os.getpid()))
    try:
        with temporary.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        temporary.replace(path)
        if lasting:
            with suppress(OSError):  # not every system can flush a folder
                folder = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
    except OSError as error:
        kept = "; the old file is kept" if os.path.lexists(path) else ""
        raise SelftaughtError(f"cannot write {printable(path)}: {error.strerror or error}{kept}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_json(path: Path, content: object, indent: int | None = 2) -> None:
    """Write a JSON file, as :func:`write_atomically` does."""
    write_atomically(path, json.dumps(content, indent=indent) + "\n")


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file to read. A pipe or a device in its place is refused: reading it might never end."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SelftaughtError(f"{printable(path)} is not a regular file: delete it")
            yield file
    except OSError as error:
        raise SelftaughtError(f"cannot read {printable(path)}: {error.strerror or error}") from None


def read_file(path: Path) -> bytes:
    """The content of a regular file."""
    with open_regular(path) as file:
        return file.read()


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if it cannot be read, is damaged, or holds something else."""
    try:
        content = json.loads(read_file(path).decode("utf-8", "surrogateescape"))
    except (SelftaughtError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a log, one on each line; it ends where it is damaged, and is empty if it cannot be read."""
    rows = []
    with suppress(SelftaughtError, ValueError, RecursionError):
        for line in read_file(path).decode("utf-8", "replace").splitlines():
            row = json.loads(line)
            if not isinstance(row, dict):
                break
            rows.append(row)
    return rows


def read_static(room: str, name: str) -> str:
    """The text of a file that is installed with a room: a style, a script, a page."""
    return resources.files(f"selftaught.{room}").joinpath("static", name).read_text("utf-8")


def is_made_after(file: Path, other: Path) -> bool:
    """Whether a file is there, and was written after another one."""
    return file.exists() and file.stat().st_mtime_ns >= other.stat().st_mtime_ns


def make_folder(path: Path) -> None:
    """Make a folder in one that exists, unless it is there."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise SelftaughtError(f"cannot make the folder {printable(path)}: {error.strerror}") from None


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows as the content of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def new_folder(path: Path, what: str, instead: str, leftovers: Collection[str] = ()) -> None:
    """Make an output folder; an existing one must be writable and empty, except for what a failed start has left."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in path.iterdir()} - {LOCK}
        if not all(name in leftovers or (name.startswith(".") and name.endswith(".tmp")) for name in names):
            raise UsageError(f"{what} {printable(path)} exists already and is not empty: {instead}")
        probe = path / TEMPORARY.format(name="probe", process=os.getpid())
        probe.touch()
        probe.unlink()
    except FileExistsError:
        raise UsageError(f"{what} {printable(path)} is a file: {instead}") from None
    except OSError as error:
        raise UsageError(f"{what} {printable(path)} cannot be written to ({error.strerror}): {instead}") from None


@contextmanager
def claim_folder(path: Path, what: str, instead: str, leftovers: Collection[str] = ()) -> Iterator[None]:
    """Make an output folder as :func:`new_folder` does, and lock it; if it is new and stays empty, it is removed."""
    is_new = not path.exists()
    new_folder(path, what, instead, leftovers)
    try:
        with lock_folder(path):
            new_folder(path, what, instead, leftovers)  # another process may just have left it
            yield
    finally:
        if is_new:
            with suppress(OSError):  # it holds files
                path.rmdir()


@contextmanager
def fill_folder(path: Path) -> Iterator[Path]:
    """A place for the files of an output folder, new or empty, that no other process fills.

    They are moved into the folder when all are written, so that after a failure the same command can be given again.
    """
    place = path / TEMPORARY.format(name="new", process="files")
    with claim_folder(path, "the folder", "give another --out"):
        try:
            shutil.rmtree(place, ignore_errors=True)  # of a process that was killed
            make_folder(place)
            yield place
            for file in list(place.iterdir()):
                file.rename(path / file.name)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def lock_folder(folder: Path) -> AbstractContextManager[None]:
    """Lock a folder: within this context, no other process holds its lock."""
    return _locked(folder / LOCK, f"at work in {printable(folder)}", f"{printable(folder)} cannot be written to")


def lock_output(path: Path) -> AbstractContextManager[None]:
    """Lock an output, a file or a folder, by a file beside it: within this context, no other process holds its lock."""
    file = plain_path(path).with_name(f".{path.name:.200}.lock")
    return _locked(file, f"writing {printable(path)}", f"{printable(path)} cannot be written")


@contextmanager
def _locked(file: Path, busy: str, impossible: str) -> Iterator[None]:
    """Hold a lock. Its file is deleted while it is held: ``filelock`` refuses a lock on a file without a name."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        if file.parent.exists() and not file.exists():  # filelock waits for it as for one that is held
            raise UsageError(f"{impossible}: no file can be made there") from None
        raise UsageError(f"another process is {busy}: wait until it has ended") from None
    except OSError as error:
        raise UsageError(f"{impossible}: {error.strerror or error}") from None
    try:
        yield
    finally:
        with suppress(OSError):  # some systems delete a file only when nobody has it open
            file.unlink()
        lock.release()


def delete(path: Path) -> None:
    """Delete a file, or a folder with all that is in it, if it can be; a pipe is not opened, which might never end."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def remove_leftovers(folder: Path) -> None:
    """Delete files and folders that a killed process has left half written."""
    for leftover in folder.glob(".*.tmp"):
        delete(leftover)


def _holds(path: Path, pattern: bytes) -> bool:
    """Whether a file is empty, or a pattern is found in it."""
    if not path.is_file():
        return False
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size == 0:
            return True
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return re.search(pattern, content) is not None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for another process to open the other end of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
