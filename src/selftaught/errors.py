"""What can go wrong in a user's hands, each as one sentence: what is wrong, where, what to do."""

import difflib
from collections.abc import Iterable


class SelftaughtError(Exception):
    """Base of all errors with a message for the user; the command line exits with ``exit_code``."""

    exit_code = 1


class UsageError(SelftaughtError, ValueError):
    """An option, a name or a path that cannot be meant."""

    exit_code = 2


class ImageError(SelftaughtError, ValueError):
    """A file that is no readable image."""


class Collapse(SelftaughtError, RuntimeError):
    """Training went wrong in a way that more of it will not mend."""


class Interrupted(SelftaughtError):
    """Stopped by the user; everything done so far is saved."""

    exit_code = 130


class EndedElsewhere(SelftaughtError):
    """This process ends because process 0 did, which also says why."""

    def __init__(self, exit_code: int = 1) -> None:
        super().__init__("another of the processes ended, and says why")
        self.exit_code = exit_code


def printable(name: object) -> str:
    """A path or name on one line, whatever characters it has."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(name))


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
    return UsageError(f"unknown {kind} {printable(name)!r}: {hint}")
