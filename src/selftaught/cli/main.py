"""Errors become one line and an exit code: 0 done, 1 failed, 2 misuse, 130 interrupted."""

import ctypes
import io
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import typer

from selftaught.cli import interrupts
from selftaught.cli.commands import app
from selftaught.errors import EndedElsewhere, SelftaughtError, UsageError, is_out_of_memory
from selftaught.launched import launched

# Typer's usage errors; versions keep their base class in different places.
MISUSE: type[Exception] = typer.BadParameter.__mro__[1]
DEBUG = "SELFTAUGHT_DEBUG"
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
"""Parameters of glibc's mallopt."""


def main() -> NoReturn:
    _settle()
    try:
        _check_processes()
        _check_words(sys.argv[1:])
        code = app(standalone_mode=False)
        sys.stdout.flush()  # so that a reader that is gone is noticed here, not when Python ends
    except EndedElsewhere as error:
        time.sleep(1)  # lets process 0 say why before the launcher, which sees this end, stops it
        _leave(error.exit_code)
    except SelftaughtError as error:
        _fail(str(error), error.exit_code)
    except MISUSE as error:
        what = error.format_message()  # type: ignore[attr-defined]
        if type(error).__name__ == "NoArgsIsHelpError":  # no command was given: this is the help
            print(what, file=sys.stderr)
            sys.exit(2)
        unquoted = "extra argument" in what and ".tar" in what
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "selftaught"
        if context and what.startswith("Missing argument"):  # the one that is missing may be another one
            what = f"{what.rstrip('.')} of {' '.join([command, *context.command.collect_usage_pieces(context)])}"
        _fail(f"{what.rstrip('.')} ({'put a pattern of shards in quotes' if unquoted else f'see {command} --help'})", 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except SystemExit as stopped:
        _fail("interrupted", 130) if stopped.code == 130 else sys.exit(stopped.code)
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        _fail(f"{error.strerror or error}{place}", 1)
    except Exception as error:
        if interrupts:
            _fail("interrupted", 130)
        if os.environ.get(DEBUG):
            traceback.print_exc()
        _fail(_unexpected(error), 1)
    if code == 130:  # typer's exit code of an interrupted command
        _fail("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _settle() -> None:
    """Prepare the process for a command, independent of where it was started."""
    _reuse_memory()
    os.environ["MPLBACKEND"] = "Agg"  # a notebook's backend would need its packages
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed by whoever started the command
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115, it stays open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for names that the terminal cannot print


def _reuse_memory() -> None:
    """Tell glibc's allocator to keep freed memory; other allocators are left as they are.

    By default it gets the memory of every large tensor from the system and gives it back after use. The system then
    clears the memory page by page each time, which takes as long as a CPU takes to compute with it.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(TOP_PAD, 2**26)


def _unexpected(error: Exception) -> str:
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if type(error).__name__ == "OutOfMemoryError":
        return "out of GPU memory: try a smaller --batch-size, or --device cpu"
    if is_out_of_memory(error):
        return "out of memory: try a smaller --batch-size, --dim or --size"
    if "start new thread" in what or "spawn worker thread" in what:
        return "the system starts no more threads for this user: end other work on this machine, or raise ulimit -u"
    if "determine home directory" in what:
        return "there is no home folder for this user: set HOME to a folder that can be written to"
    return f"unexpected {what} (set {DEBUG}=1 to see where it comes from)"


def _check_processes() -> None:
    """Raise an error if several processes were started for a command that all of them would repeat."""
    if sys.argv[1:2] in (["train"], ["embed"]) or (found := launched()) is None:
        return
    if found.rank:
        raise EndedElsewhere(2)
    raise UsageError(f"{found.processes} processes were started, but only train and embed work with several")


def _check_words(words: Sequence[str]) -> None:
    """Raise an error if a word is empty: as a path, it would mean the current folder."""
    for before, word in pairwise(["", *words]):
        if not word or re.fullmatch(r"--[a-z-]+=", word):
            what = next((name for name in (word[:-1], before) if name.startswith("-")), "an argument")
            raise UsageError(f"{what} is empty (an unset variable?): give a value, or leave it out")


def _fail(message: str, code: int) -> NoReturn:
    number, processes = _place()
    who = f"process {number + 1} of {processes}: " if number else ""
    print(f"selftaught: {who}{' '.join(message.split())}", file=sys.stderr)
    _leave(code)


def _place() -> tuple[int, int]:
    """The number of this process, and of all. If torch is not imported, which takes seconds, it is alone."""
    if "selftaught.parallel" not in sys.modules:
        return 0, 1
    from selftaught.parallel import rank, world

    return rank(), world()


def _leave(code: int) -> NoReturn:
    if _place()[1] > 1:  # threads that wait for other processes, which may be gone, would block the exit
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
