"""What a table is made of: rows, the data sets and scores of its columns, and the paper's numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Uses = Literal["train", "labeled", "both"]
"""The training images; or those that count as labeled where some do not; or labeled and unlabeled ones."""

BENCHMARKS = ("cub", "cars", "sop")
FOLDER = "folder"
"""A data set of the user's: a folder with train/ and test/."""


@dataclass(frozen=True)
class Row:
    """A line of a table. Without ``settings`` it is not a run of its own: ``why`` or ``source`` says what it is."""

    name: str
    """What ``--rows`` and the run folders call it."""
    label: str
    arch: str = ""
    group: str = ""
    """Under which heading it stands."""
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The paper's percentages of each data set, in the order of the columns."""
    settings: Mapping[str, Any] | None = None
    """What training is told beside images, seed and device."""
    weights: Literal["auto", "none", "swav"] = "auto"
    uses: Uses = "train"
    share: int = 50
    """Percent of the training classes that count as labeled, where some do not."""
    why: str = ""
    """Why only the paper's numbers are there, as the end of a sentence."""
    source: str = ""
    """The row whose run measured it, where it is an untrained model that every run measures: ``floor``, by its name."""
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
        """Those a row is run on: the ones the paper has it on, or all where the paper has no number."""
        return tuple(row.paper) or tuple(self.columns)

    @property
    def compared(self) -> bool:
        """Whether there are numbers of the paper to compare with."""
        return any(row.paper for row in self.rows)


def numbers(text: str, datasets: Sequence[str] = BENCHMARKS) -> dict[str, tuple[float, ...]]:
    """A line of a printed table: data sets divided by ``|``, a dash where there is nothing.

    Example:
        >>> numbers("45.3 57.8 68.6 | - | -")
        {'cub': (45.3, 57.8, 68.6)}
    """
    parts = dict(zip(datasets, text.split("|"), strict=True))
    return {name: tuple(map(float, part.split())) for name, part in parts.items() if part.strip() != "-"}


def network(arch: str) -> dict[str, Any]:
    """The settings behind an abbreviation of the paper's, such as G512.

    Example:
        >>> network("G64")
        {'backbone': 'googlenet', 'dim': 64}
    """
    if arch.startswith("BN"):
        return {"backbone": "bn_inception", "dim": int(arch[2:]), "freeze_batch_norm": True}
    return {"backbone": "googlenet", "dim": int(arch[1:])}
