"""Groups with their names in one CSV file, with all that is needed to find them again in new photos."""

import base64
import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from selftaught.errors import UsageError, printable
from selftaught.files import read_file
from selftaught.retrieval import Centers

COLUMNS = ("group", "name", "images", "limit", "model", "center")
"""``limit``: how far from the center a photo may be. ``center``: float16 numbers, little-endian, in base64."""


@dataclass(frozen=True)
class NamedGroups:
    """g groups of one model's vectors; the first is group 1. ``model``: :attr:`Embedder.identity`."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    centers: Centers
    model: str

    def rows(self) -> list[list[str]]:
        """The table, with its header first."""
        rows = [list(COLUMNS)]
        for number, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            center = self.centers.means[number].numpy().astype("<f2").tobytes()
            limit = f"{self.centers.limits[number].item():.6g}"
            rows.append([str(number + 1), name, str(size), limit, self.model, base64.b64encode(center).decode()])
        return rows


def read_groups(path: Path) -> NamedGroups:
    """Read a groups.csv, unchanged or with names typed in; rows may be missing or in another order."""
    names, sizes, means, limits, models = [], [], [], [], set()
    try:
        text = read_file(path).decode("utf-8-sig")
        delimiter = ";" if ";" in text.partition("\n")[0] else ","  # spreadsheets in some countries write semicolons
        for row in csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter):
            names.append((row["name"] or "").strip())
            sizes.append(int(row["images"]))
            limits.append(float(row["limit"].replace(",", ".")))
            center = np.frombuffer(base64.b64decode(row["center"], validate=True), "<f2").astype(np.float32)
            means.append(torch.from_numpy(center))
            models.add(row["model"])
        centers = Centers(torch.stack(means), torch.tensor(limits))
        if len(models) > 1 or not centers.means.isfinite().all() or not centers.limits.isfinite().all():
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, csv.Error):
        raise UsageError(f"{printable(path)} is not a groups.csv that selftaught cluster wrote") from None
    return NamedGroups(tuple(names), tuple(sizes), centers, models.pop())
