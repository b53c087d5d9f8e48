"""Every table by name: those of the paper, and our own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from selftaught.errors import UsageError, unknown
from selftaught.learners import METHODS
from selftaught.reproduce.paper import ABLATION, REMOVALS, SCRATCH, SEMI, SENSITIVITY, SSL, TABLE1
from selftaught.reproduce.table import FOLDER, Row, Table, Uses, untrained_rows

VIEWS_OF_ISIF = {"crop_scale": ((227 / 256) ** 2,) * 2, "crop_shape": "image"}
"""Crops of 227×227 from the image squashed to 256×256, as in the released training of ISIF."""
VIEWS_OF_MOCO = {"crop_scale": (0.2, 1.0), "color": 1.0}
"""Those of MoCo v2, which MSF's authors use too, without blur."""


def _rates(lr: float, head_lr: float | None = None, **others: Any) -> dict[str, Any]:
    return {"lr": lr, "head_lr": head_lr or lr, "pooling": "avg", **others}


def _sgd(lr: float, weight_decay: float, **others: Any) -> dict[str, Any]:
    return _rates(lr, optimizer="sgd", weight_decay=weight_decay, **others)


_LARGE_CROPS = {"crop_scale": ((224 / 256) ** 2,) * 2, "crop_shape": "image"}
_ANY_CROPS = {"crop_scale": (0.08, 1.0)}

PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "moco": ("MoCo v2, as published", VIEWS_OF_MOCO | _sgd(0.015, 1e-4, temperature=0.2)),
    "byol": ("BYOL, as MSF's authors train it", VIEWS_OF_MOCO | _sgd(0.025, 1e-4, momentum=0.99)),
    "msf": ("MSF, as published", VIEWS_OF_MOCO | _sgd(0.025, 1e-4, momentum=0.99)),
    "nce": ("NCE, with the views of ISIF's authors", VIEWS_OF_ISIF),
    "exemplar": ("Examplar, with the views of ISIF's authors", VIEWS_OF_ISIF),
    "isif": ("ISIF, as published", VIEWS_OF_ISIF | _sgd(0.001, 5e-4, batch_size=64, neighbors=4)),
    "mom": ("MOM, as published", _ANY_CROPS | _sgd(0.001, 5e-4)),
    "deepcluster": ("DeepCluster, as published", _ANY_CROPS | _sgd(0.05, 1e-5, schedule="constant")),
    "udml-ss": ("UDML-SS, as published", _rates(1e-5, schedule="constant", batch_size=80, neighbors=5)),
    "hyperbolic": (
        "Hyperbolic, with the rates of UHML's authors",
        _rates(1e-5, schedule="constant", batch_size=128, neighbors=8),
    ),
    "abier": ("ABIER, as published", _LARGE_CROPS | _rates(1e-5, 1e-4, batch_size=30, neighbors=5)),
}
"""What the authors' own training has otherwise, as far as settings can say it (docs/methods.md); by method, with the
row's label. Rates for 256 images are halved, as batches are."""


def _own(name: str, label: str, group: str, settings: dict[str, Any], uses: Uses = "train") -> Row:
    return Row(name, label, "", group, {}, {"method": "stml", **settings}, uses=uses)


def _compared(labeled: bool, group: str) -> list[Row]:
    """A row for each other method that learns with labels, or without."""
    others = [(name, method) for name, method in METHODS.items() if name not in ("stml", "slade")]
    return [_own(name, method.title, group, {"method": name}) for name, method in others if method.labeled == labeled]


def _published(labeled: bool, group: str) -> list[Row]:
    """A row for each method whose authors train otherwise."""
    return [
        _own(f"{name}-published", label, group, {"method": name, **settings})
        for name, (label, settings) in PUBLISHED.items()
        if METHODS[name].labeled == labeled
    ]


_SUPERVISED = {"method": "multi-similarity", "both_heads": True}
"""The first stage of semi-supervised training alone."""
_HALF = "With the labels of half of the classes"
_PUBLISHED = "Without labels, as published"

EVERY_METHOD = Table(
    "methods",
    "Every method under one protocol",
    {FOLDER: ("recall@1", "map@r", "r_precision")},
    (
        _own("start", "before training", "No training", {"epochs": 0}),
        *untrained_rows("start"),
        _own("stml", "STML", "Without labels", {}),
        _own("stml-paper", "STML, as the text has it", "Without labels", {"recipe": "paper"}),
        *(_own(name, f"STML {label}", "Without labels", changes) for name, (label, changes, _) in REMOVALS.items()),
        *_compared(labeled=False, group="Without labels"),
        *_published(labeled=False, group=_PUBLISHED),
        _own("isif-neighbors", "ISIF, as published for CUB", _PUBLISHED,
             {"method": "isif", "partner": "neighbor", **PUBLISHED["isif"][1]}),
        *_compared(labeled=True, group="With all labels"),
        *_published(labeled=True, group="With all labels"),
        _own("ms-half", "Multi-Similarity, half", _HALF, _SUPERVISED, "labeled"),
        _own("semi-stml", "STML after Multi-Similarity", _HALF, {"recipe": "semi"}, "both"),
        _own("semi-slade", "SLADE after Multi-Similarity", _HALF, {"method": "slade", "recipe": "semi"}, "both"),
        _own("semi-slade-clusters", "SLADE, pairs by clusters", _HALF,
             {"method": "slade", "pairs": "clusters", "recipe": "semi"}, "both"),
        _own("semi-slade-slow", "SLADE, pairs by clusters, at a tenth of the rates", _HALF,
             {"method": "slade", "pairs": "clusters", "recipe": "semi", "supervised_lr": 1e-4, "lr": 1e-5,
              "head_lr": 1e-5}, "both"),
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

TABLES = {table.name: table for table in (TABLE1, SCRATCH, ABLATION, SSL, SEMI, SENSITIVITY, EVERY_METHOD, SHARES)}


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
