"""A selection as a folder of links."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.explore.exhibit import Exhibit
from selftaught.files import plain_path

NAME = re.compile(r"[\w][\w .-]{0,63}")


def write_links(exhibit: Exhibit, numbers: Sequence[int], folder: Path, name: str) -> Path:
    """Make ``folder/name`` with a link to each photo; it must be new, and its name a plain word or two."""
    if not NAME.fullmatch(name) or name.endswith((".", " ")):
        raise UsageError("name the folder with letters, digits, spaces, dots and dashes")
    place = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place.mkdir()
        for rank, number in enumerate(numbers, 1):
            base = os.path.basename(exhibit.names[number])  # noqa: PTH119
            (place / f"{rank:05d} {base}").symlink_to(plain_path(exhibit.paths[number]))
    except FileExistsError:
        raise UsageError(f"there is a folder {printable(place)} already: choose another name") from None
    except OSError as error:
        raise SelftaughtError(f"links cannot be made in {printable(place)}: {error.strerror or error}") from None
    return place
