"""The request for a reproduction, and the options that its folder was begun with."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import new_folder, plain_path, read_json, write_json
from selftaught.learners import METHODS, has_setting
from selftaught.recipes import Settings
from selftaught.reproduce.paper import PARTNERS
from selftaught.reproduce.quick import Quick
from selftaught.reproduce.table import Row, Table

BEGUN = "begun.json"
CLUSTERS = {"cub": 100, "cars": 100, "sop": 10_000, "nabirds": 500, "compcars": 1000}
"""The number of clusters for methods that label images by clusters; our choice, about the number of classes."""


@dataclass(frozen=True)
class Request:
    """A table, some of its rows, and where and how to run them."""

    table: Table
    rows: tuple[Row, ...]
    data: Path
    """The folder with the data sets, and with weights in ``weights/``."""
    out: Path
    seeds: int = 1
    epochs: int | None = None
    """Epochs instead of the recipe's."""
    backbone: str | None = None
    """A backbone instead of the rows' own."""
    device: str = "auto"
    quick: Quick | None = None

    @property
    def cases(self) -> list[tuple[Row, str]]:
        """The rows, each with each of its data sets."""
        return [(row, dataset) for row in self.rows for dataset in self.table.datasets(row)]

    @property
    def command(self) -> str:
        """The command that continues the table, or makes it again."""
        words = ["selftaught", "reproduce", self.table.name]
        if len(self.rows) < sum(row.settings is not None for row in self.table.rows):
            words += [word for row in self.rows for word in ("--rows", row.name)]
        if self.quick is None:
            words += ["--data", printable(self.data)]
        words += ["--out", printable(self.out), "--seeds", str(self.seeds)]
        for name, value in (("--epochs", self.epochs), ("--backbone", self.backbone)):
            words += [] if value is None else [name, str(value)]
        words += [] if self.device == "auto" else ["--device", self.device]
        return shlex.join(words + (["--quick"] if self.quick else []))

    def settings(self, row: Row, dataset: str) -> dict[str, Any]:
        """The settings of training for a row on a data set, without images, weights, seed and device."""
        settings = settings_on(row, dataset)
        if self.quick is not None:
            settings = self.quick.settings(settings)
        if settings.get("both_heads"):  # only the first stage of semi-supervised training
            settings["epochs"] = settings.get("supervised_epochs", Settings.supervised_epochs)
        if self.backbone is not None and not METHODS[settings["method"]].ensemble:  # only its own backbone is one
            settings |= {"backbone": self.backbone, "freeze_batch_norm": None}
        if self.epochs is not None and settings.get("epochs") != 0:
            settings["epochs"] = self.epochs
            if settings.get("recipe") == "semi":
                settings["supervised_epochs"] = self.epochs
        return settings


def check_begun(request: Request) -> bool:
    """Whether the output folder holds this table already; raises an error if it holds anything else."""
    file = request.out / BEGUN
    if not file.exists():
        if request.out.is_dir() and any(request.out.iterdir()):
            raise UsageError(f"the folder {printable(request.out)} is not empty and holds no table: give another --out")
        return False
    before = read_json(file)
    if before is None:
        raise SelftaughtError(f"{printable(file)} cannot be read, or is damaged: give another --out")
    for name, value in _options(request).items():
        if before.get(name) != value:
            raise UsageError(
                f"{printable(request.out)} was begun with {_words(name, before.get(name))}, not with "
                f"{_words(name, value)}: give the same, or another --out"
            )
    return True


def begin(request: Request) -> None:
    """Make the output folder, or check that it was begun with the same options."""
    if not check_begun(request):
        new_folder(request.out, "the output folder", "give another --out")
        write_json(request.out / BEGUN, _options(request))


def _options(request: Request) -> dict[str, Any]:
    return {
        "table": request.table.name,
        "quick": request.quick is not None,
        "epochs": request.epochs,
        "backbone": request.backbone,
        "data": None if request.quick is not None else str(plain_path(request.data)),
    }


def _words(name: str, value: object) -> str:
    if name == "table":
        return f"the table {printable(value)}"
    if name == "quick":
        return "--quick" if value else "the real data"
    return f"--{name} {printable(value)}" if value is not None else f"the {name} of the recipe"


def settings_on(row: Row, dataset: str) -> dict[str, Any]:
    """A row's settings, with those that this data set needs.

    Example:
        >>> settings_on(Row("moco", "MoCo", settings={"method": "moco"}), "sop")["head_lr"]
        0.0001
    """
    assert row.settings is not None
    settings = dict(row.settings)
    method = settings["method"]
    if dataset == "sop" and "recipe" not in settings:
        settings["recipe"] = "sop"
        if method != "stml":  # the recipe's values are for STML's teacher and heads
            settings |= {"head_lr": 1e-4} | ({"momentum": 0.999} if has_setting(method, "momentum") else {})
    clustered = PARTNERS.get(dataset) if row.uses == "both" else dataset
    if METHODS[method].clusters and clustered in CLUSTERS:
        settings["clusters"] = CLUSTERS[clustered]
    return settings
