"""The table of an index, one row per image, in LanceDB."""

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from selftaught.errors import SelftaughtError, UsageError, one_line, printable, raise_if_out_of_memory
from selftaught.files import as_path, as_text

NAME = "images"
FORMAT = 1
APPROXIMATE_FROM = 200_000
"""From this many images on, neighbors are found by an IVF_RQ index instead of comparing every vector."""
PROBED, REFINED = 32, 10
"""Partitions that are searched for a query, and how many times k rows get an exact distance."""
ROWS_AT_ONCE = 1000
OF_SYSTEM = re.compile(r"([^:\s][^:]*) \(os error \d+\)")
"""The words of the operating system within a message of the database."""
OF_SOURCE = re.compile(r",? \S*\.rs:\d+(:\d+)?\b")
"""The place in the source of the database that its messages end with."""


@dataclass(frozen=True)
class About:
    """Properties of all vectors of an index."""

    model: str
    """The identity of the model that made them."""
    dim: int
    metric: str
    format: int = FORMAT


@dataclass(frozen=True)
class ImageRow:
    """One image: its absolute path, its source folder, size and time of change of the file, and a small JPEG."""

    path: str
    root: str
    size: int
    changed: int
    thumbnail: bytes


class ImageTable:
    """The rows of an index. A change is written completely or not at all, even if the process is killed."""

    def __init__(self, folder: Path, table: Any, about: About) -> None:
        self.folder, self._table, self.about = folder, table, about

    def __len__(self) -> int:
        with _in_words(self.folder):
            return int(self._table.count_rows())

    @property
    def version(self) -> int:
        """A number that every change increases."""
        return int(self._table.version)

    def refresh(self) -> None:
        """Read what other processes have written."""
        with _in_words(self.folder):
            self._table.checkout_latest()

    def put(self, rows: Sequence[ImageRow], vectors: Tensor) -> None:
        """Write rows, each instead of one with the same path."""
        values = pa.array(np.ascontiguousarray(vectors.numpy(), dtype=np.float32).reshape(-1))
        columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in ImageRow.__annotations__}
        columns |= {name: list(map(as_text, columns[name])) for name in ("path", "root")}
        columns["vector"] = pa.FixedSizeListArray.from_arrays(values, self.about.dim)
        content = pa.table(columns, schema=_schema(self.about))
        with _in_words(self.folder):
            change = self._table.merge_insert("path").when_matched_update_all().when_not_matched_insert_all()
            change.execute(content)

    def remove(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), ROWS_AT_ONCE):
            with _in_words(self.folder):
                self._table.delete(_among(paths[start : start + ROWS_AT_ONCE]))

    def thumbnails(self, paths: Sequence[str]) -> dict[str, bytes]:
        """The thumbnails of at most a thousand paths; of those that are not in the table, none."""
        with _in_words(self.folder):
            found = self._table.search().where(_among(paths)).select(["path", "thumbnail"]).to_arrow().to_pydict()
        return dict(zip(map(as_path, found["path"]), found["thumbnail"], strict=True))

    def column(self, *names: str) -> pa.Table:
        """Some columns of all rows, in an order that stays the same while nothing changes."""
        with _in_words(self.folder):
            return self._table.search().select(list(names)).to_arrow()

    def paths(self) -> list[str]:
        return list(map(as_path, self.column("path")["path"].to_pylist()))

    def roots(self) -> list[str]:
        """The folders whose images are in the index."""
        return sorted(map(as_path, self.column("root")["root"].unique().to_pylist()))

    def take(self, positions: Sequence[int], *names: str) -> pa.Table:
        """Some columns of the rows at these positions."""
        with _in_words(self.folder):
            return self._table.take_offsets(list(positions)).select(list(names)).to_arrow()

    def take_vectors(self, positions: Sequence[int]) -> tuple[list[str], Tensor]:
        found = self.take(positions, "path", "vector")
        return list(map(as_path, found["path"].to_pylist())), self.matrix(found)

    def nearest(self, queries: Tensor, k: int, *, exact: bool = False) -> list[list[tuple[str, str, float]]]:
        """For each query (path, root, distance) of the k nearest rows, nearest first."""
        found: list[list[tuple[str, str, float]]] = [[] for _ in range(len(queries))]
        if not len(queries) or not len(self):
            return found
        with _in_words(self.folder):
            search = self._table.search(queries.numpy().astype(np.float32)).select(["path", "root", "_distance"])
            search = search.limit(k)
            if exact or not self.is_approximate:
                search = search.bypass_vector_index()
            else:
                search = search.nprobes(PROBED).refine_factor(REFINED)
            rows = search.to_arrow().to_pydict()
        numbers = rows.get("query_index", [0] * len(rows["path"]))
        for number, path, root, squared in zip(numbers, rows["path"], rows["root"], rows["_distance"], strict=True):
            found[number].append((as_path(path), as_path(root), float(max(0.0, squared)) ** 0.5))
        return [sorted(near, key=lambda row: (row[2], row[0])) for near in found]

    @property
    def is_approximate(self) -> bool:
        """Whether there is an IVF_RQ index of the vectors."""
        return bool(self._table.list_indices())

    def tidy(self) -> bool:
        """Join small files, drop old versions, and build an IVF_RQ index if one is due; returns whether it was."""
        from lancedb.index import IvfRq

        build = len(self) >= APPROXIMATE_FROM and not self.is_approximate
        with _in_words(self.folder), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it warns readers of old versions; ours read the newest
            if build:
                self._table.create_index("vector", config=IvfRq(distance_type="l2"))
            self._table.optimize(cleanup_older_than=timedelta(0))
        return build

    def matrix(self, found: pa.Table) -> Tensor:
        """The vectors of rows that were read, n×dim."""
        parts = [np.asarray(part.flatten(), dtype=np.float32) for part in found["vector"].chunks]
        return torch.from_numpy(np.concatenate([*parts, np.empty(0, np.float32)]).reshape(-1, self.about.dim))


def is_index(folder: str | os.PathLike[str]) -> bool:
    return any(Path(folder, f"{NAME}.lance", "_versions").glob("*.manifest"))  # none where making it has failed


def create_table(folder: Path, about: About) -> ImageTable:
    """An empty table, where there is none."""
    with _in_words(folder):
        shutil.rmtree(folder / f"{NAME}.lance", ignore_errors=True)  # of a process that was killed
        return ImageTable(folder, _connect(folder).create_table(NAME, schema=_schema(about)), about)


def open_table(place: str | os.PathLike[str]) -> ImageTable:
    """The vectors, paths and thumbnails of an index, without its model."""
    folder = Path(place)
    if not is_index(folder):
        raise UsageError(
            f"there is no index in {printable(folder)}: make one with selftaught index RUN IMAGES --out INDEX"
        )
    with _in_words(folder):
        _check_files(folder)
        table = _connect(folder).open_table(NAME)
    try:
        about = About(**json.loads(table.schema.metadata[b"selftaught"]))
    except (KeyError, TypeError, ValueError):
        raise SelftaughtError(f"{printable(folder)} is damaged: it does not say which model it is of") from None
    if about.format != FORMAT:
        raise SelftaughtError(f"{printable(folder)} was written by another version of selftaught: make it again")
    return ImageTable(folder, table, about)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder itself or lies in it; both are absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _check_files(folder: Path) -> None:
    """Raise an error if a pipe or a device is among the files of a table: the database might never end reading it."""
    for place, _, names in os.walk(folder / f"{NAME}.lance"):
        for file in (Path(place, name) for name in names):
            if file.exists() and not file.is_file():
                raise SelftaughtError(f"{printable(file)} is not a regular file: the index must be made again")


def _connect(folder: Path) -> Any:
    try:
        import lancedb
    except ImportError:
        raise UsageError("an index needs LanceDB: pip install 'selftaught[index]'") from None
    # Processes that read images are forked between calls, and never use the database.
    warnings.filterwarnings("ignore", "lancedb fork support", RuntimeWarning)
    return lancedb.connect(folder)


def _among(paths: Sequence[str]) -> str:
    """The condition that a row is one of these paths."""
    names = ", ".join("'" + as_text(path).replace("'", "''") + "'" for path in paths)
    return f"path IN ({names})"


def _schema(about: About) -> pa.Schema:
    kinds = {"path": pa.string(), "root": pa.string(), "size": pa.int64(), "changed": pa.int64()}
    kinds |= {"thumbnail": pa.binary(), "vector": pa.list_(pa.float32(), about.dim)}
    return pa.schema(kinds, metadata={"selftaught": json.dumps(asdict(about))})


@contextmanager
def _in_words(folder: Path) -> Iterator[None]:
    """Turn errors of the database into one sentence."""
    try:
        yield
    except SelftaughtError:
        raise
    except Exception as error:  # of damaged files, the database can raise anything
        raise_if_out_of_memory(error)
        words = OF_SYSTEM.search(str(error))
        why = words[1] if words else OF_SOURCE.sub("", one_line(error, 1000))[:200]
        raise SelftaughtError(f"the index {printable(folder)} cannot be used: {why}") from None
