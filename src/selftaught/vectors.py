"""Embeddings of a folder as a file: Parquet, or NumPy with a list of paths beside it."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import write_atomically
from selftaught.model_files import WEIGHTS

SUFFIXES = (".parquet", ".npy")


@dataclass(frozen=True)
class Vectors:
    """Embedded images: paths relative to the folder they were found in, one n×dim row each."""

    root: Path
    paths: tuple[str, ...]
    vectors: Tensor
    model: str
    """Which model made them."""


def check_target(path: Path) -> None:
    """An output that cannot be written is known before the work begins."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{printable(path)} must end in .parquet or .npy")
    check_folder_of(path)


def check_folder_of(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{printable(path)} is a folder; give the file to write")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"there is no folder {printable(folder)} to write {printable(path.name)} into")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"the folder {printable(folder)} cannot be written to")


def write_vectors(path: Path, content: Vectors) -> list[Path]:
    """Write by the file's ending; returns the files that were written."""
    vectors = np.ascontiguousarray(content.vectors.numpy(), dtype=np.float32)
    notes = {"root": _text(str(content.root)), "model": content.model, "metric": "euclidean"}
    if path.suffix == ".npy":
        names = path.with_suffix(".json")
        write_atomically(path, lambda file: np.save(file, vectors))
        write_atomically(names, json.dumps(notes | {"paths": content.paths}, indent=1) + "\n")
        return [path, names]
    import pyarrow as pa
    from pyarrow import parquet

    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table(
        {"path": list(map(_text, content.paths)), "vector": column}, metadata={"selftaught": json.dumps(notes)}
    )
    write_atomically(path, lambda file: parquet.write_table(table, file))
    return [path]


def read_vectors(path: Path) -> Vectors:
    """Read what :func:`write_vectors` wrote."""
    try:
        if path.suffix == ".npy":
            vectors = np.load(path, allow_pickle=False)
            notes = json.loads(path.with_suffix(".json").read_text("utf-8"))
            paths = notes["paths"]
        else:
            from pyarrow import parquet

            table = parquet.read_table(path)
            notes = json.loads((table.schema.metadata or {})[b"selftaught"])
            paths = table["path"].to_pylist()
            column = table["vector"].combine_chunks()
            vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(paths), -1)
        if vectors.ndim != 2 or len(vectors) != len(paths):
            raise ValueError
        tensor = torch.from_numpy(np.array(vectors, dtype=np.float32))
        return Vectors(Path(notes["root"]), tuple(paths), tensor, notes["model"])
    except (OSError, ValueError, KeyError, TypeError):  # Arrow's errors are among these
        raise SelftaughtError(
            f"{printable(path)} holds no vectors written by selftaught embed, or is damaged"
        ) from None


def model_id(run: Path) -> str:
    """A fingerprint of a run's weights, so that vectors of two models are never compared."""
    with (run / WEIGHTS).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(name: str) -> str:
    """A path as Parquet can hold it, which is Unicode only; JSON holds any."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
