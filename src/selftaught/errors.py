"""Errors that a user can cause, each as one sentence: what is wrong, where, what to do."""

import difflib
import re
from collections.abc import Iterable, Sequence

OUT_OF_MEMORY = ("DefaultCPUAllocator", "allocate memory", "could not create a primitive", "failed to map segment")
"""Parts of the messages in which PyTorch, the system, oneDNN and the loader of libraries report too little memory."""


class SelftaughtError(Exception):
    """Base of all errors with a message for the user; the command line exits with ``exit_code``."""

    exit_code = 1


class UsageError(SelftaughtError, ValueError):
    """An option, a name or a path that makes no sense."""

    exit_code = 2


class ImageError(SelftaughtError, ValueError):
    """A file that is not a readable image."""


class Collapse(SelftaughtError, RuntimeError):
    """Training failed in a way that more training cannot repair."""


class Interrupted(SelftaughtError):
    """Stopped by the user; everything done so far is saved."""

    exit_code = 130


class EndedElsewhere(SelftaughtError):
    """This process ends because process 0 ended; process 0 prints the reason."""

    def __init__(self, exit_code: int = 1) -> None:
        super().__init__("another of the processes ended, and says why")
        self.exit_code = exit_code


def printable(name: object) -> str:
    """A path or name on one line, whatever characters it has."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun in the singular or the plural.

    >>> counted(1, "copy", "copies"), counted(2400, "image")
    ('1 copy', '2,400 images')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def one_line(error: object, most: int = 200) -> str:
    """The message of an error of any library, on one line of at most ``most`` characters."""
    return " ".join(str(error).split())[:most]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library says that the memory, of the machine or of a GPU, is too small."""
    kinds = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return kinds or any(sign in str(error) for sign in OUT_OF_MEMORY)


def raise_if_out_of_memory(error: BaseException) -> None:
    """Raise an error again that says that the memory is too small: it must not be told as a fault of a file or name."""
    if is_out_of_memory(error):
        raise error


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist, with the nearest ones that do."""
    names = sorted(known)
    hint = suggest(near_names(str(name), names)) or f"choose from {', '.join(names)}"
    return UsageError(f"unknown {kind} {printable(name)!r}: {hint}")


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to four known names that contain all parts of a name, shortest first, or else the one spelled most like it.

    >>> near_names("dinov2-small", ["vit_small_patch14_dinov2", "dpn92", "vit_base_patch14_dinov2"])
    ['vit_small_patch14_dinov2']
    """
    names = list(known)
    parts = [part for part in re.split(r"[^a-z0-9]+", name.lower()) if part]
    telling = any(len(part) > 2 for part in parts)
    holding = [each for each in names if telling and all(part in each.lower() for part in parts)]
    shortest = sorted(holding, key=lambda each: (len(each), each))[:4]
    return shortest or difflib.get_close_matches(name, names, n=1, cutoff=0.65)


def suggest(near: Sequence[str]) -> str:
    """The question whether one of these was meant; empty if there are none."""
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
