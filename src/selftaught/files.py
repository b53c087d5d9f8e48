"""Files are written whole or not at all."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from selftaught.errors import SelftaughtError, UsageError, printable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".{name:.200}.{process}.tmp"


def write_atomically(
    path: Path, content: bytes | memoryview | str | Callable[[BinaryIO], object], *, lasting: bool = True
) -> None:
    """Write beside the target, flush to the disk, then rename over it: a reader sees the old file or the new one.

    Flushing takes a while; what can be lost if the machine loses its power, such as a record of the last seconds, need
    not be ``lasting``.
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
            _sync_folder(path.parent)
    except OSError as error:
        _discard(temporary)
        raise SelftaughtError(
            f"cannot write {printable(path)}: {error.strerror or error}; the old file is kept"
        ) from error
    except BaseException:
        _discard(temporary)
        raise


def new_folder(path: Path, what: str, instead: str) -> None:
    """Make an output folder; an existing one must be empty and writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UsageError(f"{what} {printable(path)} exists already and is not empty: {instead}")
        probe = path / TEMPORARY.format(name="probe", process=os.getpid())
        probe.touch()
        probe.unlink()
    except FileExistsError:
        raise UsageError(f"{what} {printable(path)} is a file: {instead}") from None
    except OSError as error:
        raise UsageError(f"{what} {printable(path)} cannot be written to ({error.strerror}): {instead}") from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Within, no other process can be so with the same folder. Where there are no such locks, it goes on without."""
    if fcntl is None:
        yield
        return
    place = folder / ".lock"
    with place.open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gone with this process, and not its children's
        except (BlockingIOError, PermissionError):
            raise UsageError(f"another process is at work in {printable(folder)}: wait until it has ended") from None
        except OSError:
            pass
        try:
            yield
        finally:
            place.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed process had begun to write."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def _discard(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
