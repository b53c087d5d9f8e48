"""Tables: rows, the data sets and scores of the columns, and the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Uses = Literal["train", "labeled", "both"]
"""All training images; or only those that count as labeled; or labeled and unlabeled ones."""

CUB_CARS_SOP = ("cub", "cars", "sop")
FOLDER = "folder"
"""A data set of the user's: a folder with train/ and test/."""


@dataclass(frozen=True)
class Row:
    """A line of a table. Without ``settings`` it has no run of its own: ``why`` or ``source`` says why."""

    name: str
    """Its name in ``--rows`` and the run folders."""
    label: str
    arch: str = ""
    group: str = ""
    """The heading above it."""
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The paper's percentages for each data set, in the order of the columns."""
    settings: Mapping[str, Any] | None = None
    """The settings of training, without images, seed and device."""
    weights: Literal["auto", "none", "swav"] = "auto"
    uses: Uses = "train"
    share: int = 50
    """Percent of the training classes that count as labeled, if some do not."""
    why: str = ""
    """The reason why there are only the paper's numbers, as the end of a sentence."""
    source: str = ""
    """For an untrained model, which every run measures: the row whose run measured it; ``floor`` is its name."""
    floor: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one of our own."""

    name: str
    title: str
    columns: Mapping[str, tuple[str, ...]]
    """The scores of each data set, by their names in a run's metrics."""
    rows: tuple[Row, ...]
    note: str = ""

    def datasets(self, row: Row) -> tuple[str, ...]:
        """The data sets of a row: those with a number in the paper, or all if the paper has none."""
        return tuple(row.paper) or tuple(self.columns)

    @property
    def compared(self) -> bool:
        """Whether there are numbers of the paper to compare with."""
        return any(row.paper for row in self.rows)


UNTRAINED = {
    "plain-floor": ("plain backbone", "average pooling, cosine"),
    "half-whitened-floor": ("half-whitened", "the same, half-whitened to 512 dimensions"),
    "plain-avg-max-floor": ("plain, avg+max", "average plus maximum, cosine"),
    "half-whitened-avg-max-floor": ("half-whitened, avg+max", "the same, half-whitened to 512 dimensions"),
}
"""The untrained models that every run from pretrained weights measures: by row, its name there and its label."""


def untrained_rows(source: str, arch: str = "", end: str = "") -> tuple[Row, ...]:
    """A row for each untrained model that the run of the row ``source`` has measured; ``end``: of the rows' names."""
    return tuple(
        Row(name + end, label, arch, "No training", source=source, floor=floor)
        for name, (floor, label) in UNTRAINED.items()
    )


def numbers(text: str, datasets: Sequence[str] = CUB_CARS_SOP) -> dict[str, tuple[float, ...]]:
    """The numbers in a line of a printed table: data sets are separated by ``|``, a dash means no numbers.

    Example:
        >>> numbers("45.3 57.8 68.6 | - | -")
        {'cub': (45.3, 57.8, 68.6)}
    """
    parts = dict(zip(datasets, text.split("|"), strict=True))
    return {name: tuple(map(float, part.split())) for name, part in parts.items() if part.strip() != "-"}


def network(arch: str) -> dict[str, Any]:
    """The settings for an abbreviation of the paper, such as G512.

    Example:
        >>> network("G64")
        {'backbone': 'googlenet', 'dim': 64}
    """
    if arch.startswith("BN"):
        return {"backbone": "bn_inception", "dim": int(arch[2:]), "freeze_batch_norm": True}
    return {"backbone": "googlenet", "dim": int(arch[1:])}
