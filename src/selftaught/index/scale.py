"""A scale for distances: how a distance ranks among those between the neighbors of a collection."""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from selftaught.data import pick_evenly
from selftaught.files import read_json, write_json
from selftaught.index.table import ImageTable
from selftaught.retrieval import nearest

FILE = "neighbors.json"
SAMPLE, NEIGHBORS = 300, 10
"""The number of images whose neighbors make the scale, and the number of neighbors of each."""


@dataclass(frozen=True)
class Scale:
    """Distances of neighbors within a collection, sorted."""

    distances: Sequence[float]

    def closer_than(self, distance: float) -> float | None:
        """The fraction of the collection's neighbors that are further apart; None if it has no neighbors.

        Example:
            >>> Scale([1.0, 2.0, 3.0, 4.0]).closer_than(1.5)
            0.75
        """
        if not self.distances:
            return None
        return 1 - bisect_right(self.distances, distance) / len(self.distances)


def scale_of(vectors: Tensor) -> Scale:
    """The scale of a collection, from its vectors (n×d)."""
    if len(vectors) < 2:
        return Scale([])
    some = torch.tensor(pick_evenly(len(vectors), SAMPLE))
    distances, _ = nearest(vectors[some], vectors, min(NEIGHBORS, len(vectors) - 1), exclude=some)
    return Scale(sorted(distances.flatten().tolist()))


def scale_of_table(table: ImageTable) -> Scale:
    """The scale that was written with a table, or else a new one."""
    if (written := read_scale(table)) is not None:
        return written
    paths, vectors = table.take_vectors(pick_evenly(len(table), SAMPLE)) if len(table) else ([], torch.empty(0, 1))
    found = table.nearest(vectors, NEIGHBORS + 1)
    near = [[d for path, _, d in row if path != own][:NEIGHBORS] for own, row in zip(paths, found, strict=True)]
    return Scale(sorted(distance for row in near for distance in row))


def read_scale(table: ImageTable) -> Scale | None:
    """The scale that was written with a table as it is now; None if the table has changed since."""
    notes = read_json(table.folder / FILE) or {}
    with suppress(ValueError, KeyError, TypeError):
        if notes["version"] == table.version:
            return Scale([float(distance) for distance in notes["distances"]])
    return None


def write_scale(table: ImageTable) -> None:
    """Write the scale beside a table that has changed."""
    notes = {"version": table.version, "distances": list(scale_of_table(table).distances)}
    write_json(table.folder / FILE, notes, indent=None)
