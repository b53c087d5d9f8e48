"""Every table by name: those of the paper, and our own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from selftaught import learners
from selftaught.errors import UsageError, unknown
from selftaught.reproduce.paper import ABLATION, REMOVALS, SCRATCH, SEMI, SENSITIVITY, SSL, TABLE1
from selftaught.reproduce.table import FOLDER, Row, Table, Uses

VIEWS_OF_ISIF = {"crop_scale": ((227 / 256) ** 2,) * 2, "crop_shape": "image"}
"""Crops of 227×227 from the image squashed to 256×256, as in the released training of ISIF."""


def _own(name: str, label: str, group: str, settings: dict[str, Any], uses: Uses = "train") -> Row:
    return Row(name, label, "", group, {}, {"method": "stml", **settings}, uses=uses)


def _compared(labeled: bool, group: str) -> list[Row]:
    """A row for each other method that learns with labels, or without."""
    others = [(name, method) for name, method in learners.METHODS.items() if name not in ("stml", "slade")]
    return [_own(name, method.title, group, {"method": name}) for name, method in others if method.labeled == labeled]


_SUPERVISED = {"method": "multi-similarity", "both_heads": True}
"""The first stage of semi-supervised training alone."""
_HALF = "With the labels of half of the classes"
_PUBLISHED = "Without labels, with the views of ISIF's authors"

METHODS = Table(
    "methods",
    "Every method under one protocol",
    {FOLDER: ("recall@1", "map@r", "r_precision")},
    (
        _own("start", "before training", "No training", {"epochs": 0}),
        *(Row(f"{floor.split()[0]}-floor", label, group="No training", source="start", floor=floor)
          for floor, label in (("plain backbone", "plain backbone: average pooling, cosine"),
                               ("half-whitened", "the same, half-whitened to 512 dimensions"))),
        _own("stml", "STML", "Without labels", {}),
        _own("stml-paper", "STML, as the text has it", "Without labels", {"recipe": "paper"}),
        *(_own(name, f"STML {label}", "Without labels", changes) for name, (label, changes, _) in REMOVALS.items()),
        *_compared(labeled=False, group="Without labels"),
        _own("nce-published", "NCE, as published", _PUBLISHED, {"method": "nce", **VIEWS_OF_ISIF}),
        _own("exemplar-published", "Examplar, as published", _PUBLISHED, {"method": "exemplar", **VIEWS_OF_ISIF}),
        _own("isif-published", "ISIF, as published", _PUBLISHED, {"method": "isif", **VIEWS_OF_ISIF}),
        _own("isif-neighbors", "ISIF, as published for CUB", _PUBLISHED,
             {"method": "isif", "partner": "neighbor", **VIEWS_OF_ISIF}),
        *_compared(labeled=True, group="With all labels"),
        _own("ms-half", "Multi-Similarity, half", _HALF, _SUPERVISED, "labeled"),
        _own("semi-stml", "STML after Multi-Similarity", _HALF, {"recipe": "semi"}, "both"),
        _own("semi-slade", "SLADE after Multi-Similarity", _HALF, {"method": "slade", "recipe": "semi"}, "both"),
        _own("semi-slade-clusters", "SLADE, pairs by clusters", _HALF,
             {"method": "slade", "pairs": "clusters", "recipe": "semi"}, "both"),
    ),
    "With the labels of half of the classes, the first row is the supervised stage alone; the others go on from there.",
)  # fmt: skip

PERCENT = (10, 25, 50)
KINDS: dict[str, tuple[str, dict[str, Any], Uses]] = {
    "ms": ("Multi-Similarity on the labels", _SUPERVISED, "labeled"),
    "slade": ("then SLADE on all images", {"method": "slade", "recipe": "semi"}, "both"),
    "stml": ("then STML on all images", {"recipe": "semi"}, "both"),
}
"""The lines of the picture, by name: label, settings, images."""


def _share(kind: str, percent: int, label: str, settings: dict[str, Any], uses: Uses) -> Row:
    row = _own(f"{kind}-{percent}", f"{label}, {percent}%", f"{percent}% of the classes with labels", settings, uses)
    return replace(row, share=percent)


SHARES = Table(
    "shares",
    "Recall@1 against the share of classes with labels",
    {FOLDER: ("recall@1", "map@r", "r_precision")},
    (
        _share("stml", 0, "STML", {}, "train"),
        *(_share(kind, percent, *row) for percent in PERCENT for kind, row in KINDS.items()),
        _share("ms", 100, KINDS["ms"][0], _SUPERVISED, "train"),
    ),
    "The classes with labels are the first in alphabetical order. Supervised rows are the first stage of the others.",
)

TABLES = {table.name: table for table in (TABLE1, SCRATCH, ABLATION, SSL, SEMI, SENSITIVITY, METHODS, SHARES)}


def find_table(name: str) -> Table:
    """A table by name.

    Example:
        >>> find_table("ablation").title
        'Table 3: STML with one part taken away'
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]


def find_rows(table: Table, names: Sequence[str]) -> tuple[Row, ...]:
    """The rows with these names, in the table's order; without names, all rows that can be run."""
    known = {row.name: row for row in table.rows}
    for name in names:
        if name not in known:
            raise unknown(f"row of {table.name}", name, known)
        if known[name].source:
            raise UsageError(f"the row {name!r} comes with the run of {known[name].source!r}: name that one")
        if known[name].settings is None:
            why = known[name].why
            raise UsageError(f"the row {name!r} is not run: only the paper's numbers of it are here, as {why}")
    return tuple(row for row in table.rows if row.settings is not None and (row.name in names or not names))
