"""A whole table in minutes, on drawn product photos and a small network. It shows that all parts work together."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from selftaught.data import Advance, first_classes, make_products
from selftaught.learners import METHODS, has_setting
from selftaught.reproduce.table import Row, Table, Uses

EMBEDDED = "embedded"
"""The one data set of a quick table."""

_NETWORK = {"backbone", "freeze_batch_norm"}
"""The settings of a row's network, which is another one here."""


@dataclass(frozen=True)
class Quick:
    """The size of a quick table."""

    products: int = 80
    photos: int = 8
    epochs: int = 6

    @property
    def images(self) -> int:
        """Photos to train on."""
        return self.products // 2 * self.photos

    def counts(self, uses: Uses, share: int = 50) -> dict[str, int]:
        """The number of photos in each source of ``train``."""
        labeled = first_classes(self.products // 2, share) * self.photos
        if uses == "both":
            return {"labeled": labeled, "unlabeled": self.images - labeled}
        return {"images": self.images if uses == "train" else labeled}

    def settings(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row's settings, with defaults that suit few small photos."""
        own = {name: value for name, value in row.items() if name not in _NETWORK}
        common: dict[str, Any] = {
            "backbone": "small_abe" if METHODS[row["method"]].ensemble else "small",
            "epochs": self.epochs,
            "supervised_epochs": max(1, self.epochs // 2),
            # A row with its own number of neighbors needs its own batch size.
            "batch_size": None if "neighbors" in own else 48,
            "neighbors": 4,
            "lr": 1e-3,
            "head_lr": 1e-3,
            "momentum": 0.9,
            "queue": max(1, self.images // 2),
            "crop_scale": (0.3, 1.0),
            "freeze_batch_norm": None,
        }
        return {name: value for name, value in common.items() if has_setting(row["method"], name)} | own

    def draw(self, folder: Path, advance: Advance) -> None:
        """Draw the photos, unless they exist: ``make_products`` leaves a complete folder or none."""
        if not folder.exists():
            make_products(folder, products=self.products, photos=self.photos, class_folders=True, advance=advance)


def quick_table(table: Table) -> Table:
    """The rows of a table that can be run, on the embedded data; rows that are equal there become one.

    Example:
        >>> from selftaught.reproduce.paper import TABLE1
        >>> [row.name for row in quick_table(TABLE1).rows][-2:]
        ['udml-ss-g512', 'stml-g512']
    """
    scores = tuple(dict.fromkeys(score for scores in table.columns.values() for score in scores))
    rows: dict[str, Row] = {}
    for row in table.rows:
        if row.settings is not None:
            rows.setdefault(alike(row), replace(row, arch="", paper={}))
    labels = Counter(row.label for row in rows.values())
    for key, row in rows.items():
        if labels[row.label] > 1 and row.settings is not None:  # they differ in the size of the embedding
            rows[key] = replace(row, label=f"{row.label}, {row.settings['dim']} dimensions")
    note = (
        "Drawn photos, a small network and few epochs: these numbers cannot be compared with the paper's. "
        "Rows that differ only in backbone or weights are one row here."
    )
    return Table(table.name, f"{table.title} (quick)", {EMBEDDED: scores}, tuple(rows.values()), note)


def alike(row: Row) -> str:
    """A key of what a row does on the embedded data; rows with the same key are one."""
    assert row.settings is not None
    return repr((Quick().settings(row.settings), row.uses, row.share))
