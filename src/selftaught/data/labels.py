"""The class of an image: the name of a folder around it, or a row of a table."""

import csv
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, cast, get_args

from selftaught.errors import UsageError, printable, unknown

Level = Literal["top", "leaf"]
"""Which folder names the class: the first on the image's path, or the one that holds the image."""
COLUMNS = ("path", "label")


def folder_labels(files: Iterable[str], level: Level) -> tuple[str, ...]:
    """The path of the folder that names each file's class; "" for a file without a folder.

    Example:
        >>> files = ["fruit/apple/1.jpg", "fruit/pear/2.jpg"]
        >>> folder_labels(files, "top"), folder_labels(files, "leaf")
        (('fruit', 'fruit'), ('fruit/apple', 'fruit/pear'))
    """
    folders = (file.rpartition("/")[0] for file in files)
    names = folders if level == "leaf" else (folder.partition("/")[0] for folder in folders)
    return tuple(map(sys.intern, names))  # one string object for all images of a class


def usual_level(folders: Iterable[str]) -> Level:
    """The level that most likely names classes, from the folders that hold images.

    It is "leaf" if images lie only in folders without further folders of images; those in no folder do not count.

    Example:
        >>> usual_level(["fruit/apple", "fruit/pear"]), usual_level(["cat", "cat/kitten"])
        ('leaf', 'top')
    """
    holding = set(folders) - {""}
    for folder in holding:
        above = folder
        while above:
            above = above.rpartition("/")[0]
            if above in holding:
                return "top"
    return "leaf"


def check_level(level: str | None) -> Level | None:
    """The level of this name; raises an error if there is none."""
    if level is not None and level not in get_args(Level):
        raise unknown("level", level, get_args(Level))
    return cast(Level | None, level)


def read_labels(file: str | os.PathLike[str]) -> dict[str, str]:
    """The label of each path in a CSV file with the columns path and label; other columns are ignored."""
    name = printable(file)
    place = Path(file)
    if not os.fspath(file) or not place.is_file():
        raise UsageError(f"there is no file of labels {name!r}: it is a CSV file with the columns path and label")
    labels: dict[str, str] = {}
    try:
        with place.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            rows = csv.DictReader(text, strict=True)
            if not set(COLUMNS) <= set(rows.fieldnames or ()):
                raise UsageError(f"the first line of {name} must name the columns path and label")
            for row in rows:
                path, label = ((row[column] or "").strip() for column in COLUMNS)
                path = os.path.normpath(path).replace(os.sep, "/") if path else ""
                if not path or not label:
                    raise UsageError(f"line {rows.line_num} of {name} lacks a path or a label")
                if labels.setdefault(path, label) != label:
                    raise UsageError(f"{name} has two labels for {printable(path)}: {labels[path]} and {label}")
    except csv.Error as error:
        raise UsageError(f"line {rows.line_num} of {name} cannot be read as CSV: {error}") from None
    except OSError as error:
        raise UsageError(f"the file of labels {name} cannot be read: {error.strerror}") from None
    return labels
