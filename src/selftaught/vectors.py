"""Embeddings of a collection as a file: Parquet, or NumPy with a list of paths beside it."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from selftaught.data import Stamp
from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, UsageError, printable, raise_if_out_of_memory
from selftaught.files import as_path, as_text, check_output, open_regular, read_file, write_atomically
from selftaught.model_files import DESCRIPTION, METRIC_NAMES

FORMAT = 2
OWN, OWN_SKIPPED = rb'\{\s*"selftaught": "vectors"', rb"\Apath,reason\n"
"""What the files of selftaught embed are recognized by."""
SUFFIXES = (".parquet", ".npy")


@dataclass(frozen=True)
class Vectors:
    """Embedded images: paths relative to the folder they were found in, one n×dim row each."""

    root: Path
    paths: tuple[str, ...]
    vectors: Tensor
    model: str
    """The identity of the model that made them, which covers its size at use and all else that changes vectors."""
    metric: str = "euclidean"
    stamps: tuple[Stamp, ...] = ()
    """One per path, or none."""


def check_target(path: Path) -> None:
    """Raise an error, before the work begins, if an output cannot be written or would replace something else."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{printable(path)} must end in .parquet or .npy")
    names, own = path.with_suffix(".json"), OWN
    if path.suffix == ".npy":
        check_output(names, OWN)
    if partial_file(path).exists() or (path.suffix == ".npy" and names.exists()):
        own = b""  # an array itself has no room for a mark
    check_output(path, own)
    check_output(skipped_file(path), OWN_SKIPPED)


def partial_file(path: Path) -> Path:
    """The file with the finished part of vectors that are still being made."""
    return path.with_name(f"{path.name}.partial")


def whitened_model(path: Path) -> Path:
    """The folder with the model that was whitened for these vectors."""
    return path.with_suffix(".model")


def skipped_file(path: Path) -> Path:
    """The file that lists the images that were left out."""
    return path.with_name(f"{path.stem}.skipped.csv")


def write_vectors(path: Path, content: Vectors) -> list[Path]:
    """Write vectors in the format that the file's ending names; returns the files that were written.

    A reader may see one of two files replaced before the other: a digest of both tells whether they belong together.
    """
    vectors = np.ascontiguousarray(content.vectors.numpy(), dtype=np.float32)
    paths = list(map(as_text, content.paths))
    notes = {"selftaught": "vectors", "format": FORMAT, "root": as_text(str(content.root)), "model": content.model}
    notes |= {"metric": content.metric}
    notes["digest"] = _digest(vectors, notes, paths, content.stamps)
    sizes, times = ([stamp[i] for stamp in content.stamps] for i in (0, 1))
    if path.suffix == ".npy":
        names = path.with_suffix(".json")
        table = {"paths": content.paths, "bytes": sizes, "changed": times}
        write_atomically(path, lambda file: _write_npy(file, vectors))
        write_atomically(names, json.dumps(notes | table, indent=1) + "\n")
        return [path, names]
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"path": paths, "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])}
    if content.stamps:
        columns |= {"bytes": pa.array(sizes, pa.int64()), "changed": pa.array(times, pa.int64())}
    whole = pa.table(columns, metadata={"selftaught": json.dumps(notes)})
    write_atomically(path, lambda file: parquet.write_table(whole, file))
    return [path]


def read_vectors(path: Path) -> Vectors:
    """Read what :func:`write_vectors` wrote, or all the parts of it that ``embed --shard`` wrote."""
    if not path.exists():
        return _joined(path)
    try:
        vectors, notes, table = (_read_npy if path.suffix == ".npy" else _read_parquet)(path)
        paths, stamps = table["path"], tuple(zip(table["bytes"], table["changed"], strict=True))
        _check(vectors, notes, paths, stamps)
    except SelftaughtError:
        raise
    except Exception as error:  # readers can raise anything on files of other kinds
        raise_if_out_of_memory(error)
        beside = f" or does not belong to {path.with_suffix('.json').name}" if path.suffix == ".npy" else ""
        raise SelftaughtError(
            f"{printable(path)} holds no vectors written by this version of selftaught embed, or is damaged"
            f"{printable(beside)}: embed the images again"
        ) from None
    tensor = torch.from_numpy(np.array(vectors, dtype=np.float32))
    return Vectors(Path(as_path(notes["root"])), tuple(paths), tensor, notes["model"], notes["metric"], stamps)


def read_vectors_of(path: Path, embedder: Embedder) -> Vectors:
    """Read vectors that this very model made; those of another model, or of other views, are refused."""
    known = read_vectors(path)
    check_model(path, known, embedder, "embed the images again")
    return known


def check_model(path: Path, known: Vectors, embedder: Embedder, instead: str) -> None:
    """Raise an error, with what to do ``instead``, unless the vectors read from a file are of this very model."""
    if (known.model, known.vectors.shape[1]) == (embedder.identity, embedder.dim):
        return
    kept = whitened_model(path)
    if (kept / DESCRIPTION).is_file() and Embedder.load(kept, "cpu").identity == known.model:
        raise UsageError(
            f"{printable(path)} was made with --whiten, and its vectors are of the model in {printable(kept)}: "
            f"give that model, or {instead}"
        )
    raise UsageError(
        f"{printable(path)} was made with another model, or with another --size, --mirror, --scales or --whiten: "
        f"give what it was made with, or {instead}"
    )


def part_of(path: Path, number: int, count: int) -> Path:
    """The file of one part: ``vectors.2-of-8.npy``."""
    return path.with_name(f"{path.stem}.{number}-of-{count}{path.suffix}")


def _joined(path: Path) -> Vectors:
    pattern = re.compile(rf"{re.escape(path.stem)}\.\d+-of-(\d+){re.escape(path.suffix)}")
    counts = {int(match[1]) for file in path.parent.glob("*") if (match := pattern.fullmatch(file.name))}
    if len(counts) != 1:
        several = f": there are parts of {' and of '.join(map(str, sorted(counts)))}" if counts else ""
        raise UsageError(f"there is no file {printable(path)}{several}")
    parts = [part_of(path, number, max(counts)) for number in range(1, max(counts) + 1)]
    missing = [part for part in parts if not part.exists()]
    if missing:
        raise UsageError(f"{printable(path)} is not complete: there is no {printable(missing[0].name)}")
    read = [read_vectors(part) for part in parts]
    first = read[0]
    for part, one in zip(parts, read, strict=True):
        if (one.model, one.root, one.vectors.shape[1]) != (first.model, first.root, first.vectors.shape[1]):
            raise UsageError(f"{printable(parts[0])} and {printable(part.name)} are of different models or folders")
    paths = [name for one in read for name in one.paths]
    stamps = [stamp for one in read for stamp in one.stamps]
    order = sorted(range(len(paths)), key=paths.__getitem__)
    return replace(
        first,
        paths=tuple(paths[i] for i in order),
        vectors=torch.cat([one.vectors for one in read])[order],
        stamps=tuple(stamps[i] for i in order) if stamps else (),
    )


def _write_npy(file: BinaryIO, vectors: np.ndarray) -> None:
    """Write what ``np.save`` writes, which does not say that the disk is full."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(vectors))
    file.write(vectors.data)


def _read_npy(path: Path) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    notes = json.loads(read_file(path.with_suffix(".json")))
    table = {"path": notes.pop("paths"), "bytes": notes.pop("bytes", []), "changed": notes.pop("changed", [])}
    with open_regular(path) as file:
        return np.load(file, allow_pickle=False), notes, table


def _read_parquet(path: Path) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    from pyarrow import parquet

    with open_regular(path) as file:
        table = parquet.read_table(file)
    notes = json.loads(table.schema.metadata[b"selftaught"])
    columns = {name: table[name].to_pylist() if name in table.column_names else [] for name in ("bytes", "changed")}
    columns["path"] = list(map(as_path, table["path"].to_pylist()))
    values = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(columns["path"]), -1), notes, columns


def _check(vectors: np.ndarray, notes: dict[str, Any], paths: Sequence[Any], stamps: Sequence[Any]) -> None:
    """Raise an error unless the content is what was written."""
    texts = [*paths, notes["root"], notes["model"]]
    if not isinstance(vectors, np.ndarray) or vectors.dtype != np.float32 or vectors.ndim != 2 or not len(vectors):
        raise ValueError
    if not all(isinstance(text, str) for text in texts) or len(vectors) != len(paths):
        raise ValueError
    if notes["format"] != FORMAT or notes["metric"] not in METRIC_NAMES:
        raise ValueError
    same = notes["digest"] == _digest(vectors, notes, list(map(as_text, paths)), stamps)
    if not same or len(stamps) not in (0, len(paths)) or not np.isfinite(vectors).all():
        raise ValueError


def _digest(vectors: np.ndarray, notes: dict[str, Any], paths: Sequence[str], stamps: Sequence[Any]) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(vectors, "<f4").data)
    digest.update(json.dumps([notes["root"], notes["model"], notes["metric"], paths, stamps]).encode())
    return digest.hexdigest()
