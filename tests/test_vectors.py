import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from selftaught.errors import SelftaughtError, UsageError
from selftaught.vectors import Vectors, read_vectors, write_vectors

STAMPS = ((5, 6), (7, 8), (9, 10))


@pytest.fixture(params=[".npy", ".parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"v{request.param}"
    content = Vectors(Path("/photos"), ("a", "b", "ü"), torch.arange(6.0).reshape(3, 2), "m", "cosine", STAMPS)
    write_vectors(path, content)
    return path


def test_what_is_written_is_read(file: Path) -> None:
    known = read_vectors(file)
    assert (known.root, known.paths, known.model) == (Path("/photos"), ("a", "b", "ü"), "m")
    assert (known.metric, known.stamps) == ("cosine", STAMPS)
    assert known.vectors.tolist() == [[0, 1], [2, 3], [4, 5]]
    if file.suffix == ".npy":
        assert np.load(file).shape == (3, 2)


def test_a_write_that_fails_midway_gives_the_reason(file: Path) -> None:
    resource = pytest.importorskip("resource")
    old, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    try:
        with pytest.raises(SelftaughtError, match="File too large; the old file is kept"):
            write_vectors(file, Vectors(Path("/photos"), ("a",), torch.randn(1, 99_999), "m", "cosine", ((1, 1),)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (old, most))


def refused(file: Path) -> None:
    with pytest.raises(
        SelftaughtError, match=r"by this version of selftaught embed, .*: embed the images again"
    ) as caught:
        read_vectors(file)
    assert "\n" not in str(caught.value)


def test_cut_and_flipped_files_are_refused(file: Path) -> None:
    whole = file.read_bytes()
    for end in (0, 1, 5, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:end])
        refused(file)
    flipped = 0
    for position in range(0, len(whole), max(1, len(whole) // 200)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            known = read_vectors(file)
        except SelftaughtError:
            flipped += 1
        else:  # a place that carries no content, such as a padding or the name of a writer
            assert known.paths == ("a", "b", "ü")
            assert known.vectors.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert flipped > 20


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_in_place_of_a_file_is_refused_at_once(file: Path) -> None:
    for part in list(file.parent.iterdir()):
        content = part.read_bytes()
        part.unlink()
        os.mkfifo(part)
        with pytest.raises(SelftaughtError, match=rf"{part.name} is not a regular file"):
            read_vectors(file)
        part.unlink()
        part.write_bytes(content)


def test_arrays_that_are_no_vectors_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "v.npy"
    write_vectors(file, Vectors(Path("/p"), ("a",), torch.ones(1, 2), "m"))
    for array in (np.ones(2), np.ones((1, 3), "f4"), np.ones((1, 2)), np.ones((0, 2), "f4"), np.array([[None, 1]])):
        np.save(file, array)
        refused(file)
    np.savez(file.open("wb"), a=np.ones((1, 2)))
    refused(file)


def test_names_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "v.npy"
    write_vectors(file, Vectors(Path("/p"), ("a",), torch.ones(1, 2), "m"))
    notes = json.loads((tmp_path / "v.json").read_text())
    wrong: list[Any] = [None, 5, {}, [None], ["b"], ["a", "b"], "x"]
    used = ["format", "root", "model", "metric", "digest", "paths"]
    texts = [json.dumps(notes | {name: value}) for name in used for value in wrong] + ["", "[]", "[" * 100_000, "null"]
    texts += [json.dumps({k: v for k, v in notes.items() if k != name}) for name in used]
    for text in texts:
        (tmp_path / "v.json").write_text(text)
        refused(file)


def test_tables_of_others_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "v.parquet"
    write_vectors(file, Vectors(Path("/p"), ("a", "b"), torch.ones(2, 2), "m"))
    table = pq.read_table(file)
    two = pa.array([[1.0, 1.0], None], pa.list_(pa.float32()))
    columns: list[dict[str, Any]] = [
        {"path": ["a", "b"]},
        {"vector": table["vector"]},
        {"path": ["a", None], "vector": table["vector"]},
        {"path": ["a", "b"], "vector": two},
        {"path": ["a", "b"], "vector": [[1.0], [1.0, 2.0, 3.0]]},
        {"path": ["a", "b"], "vector": ["x", "y"]},
        {"path": [1, 2], "vector": table["vector"]},
        {"path": ["a", "b"], "vector": pa.array([[1.0, 1.0, 1.0]] * 2, pa.list_(pa.float32(), 3))},
        {"path": pa.array([], pa.string()), "vector": pa.array([], pa.list_(pa.float32(), 2))},
    ]
    for content in columns:
        pq.write_table(pa.table(content, metadata=table.schema.metadata), file)
        refused(file)
    pq.write_table(table.replace_schema_metadata(None), file)
    refused(file)


def test_parts_must_be_complete_and_of_one_kind(tmp_path: Path) -> None:
    def part(name: str, model: str = "m") -> None:
        write_vectors(tmp_path / name, Vectors(Path("/p"), (name,), torch.ones(1, 2), model))

    whole = tmp_path / "v.npy"
    part("v.2-of-2.npy")
    with pytest.raises(UsageError, match=r"there is no v\.1-of-2\.npy"):
        read_vectors(whole)
    part("v.1-of-2.npy", "other")
    with pytest.raises(UsageError, match="different models"):
        read_vectors(whole)
    part("v.1-of-2.npy")
    assert read_vectors(whole).paths == ("v.1-of-2.npy", "v.2-of-2.npy")
    part("v.1-of-3.npy")
    with pytest.raises(UsageError, match="parts of 2 and of 3"):
        read_vectors(whole)


@pytest.mark.parametrize("name", ["v[1]", "v*", "v\n?", "v(+"])
def test_parts_are_found_whatever_the_file_is_called(name: str, tmp_path: Path) -> None:
    whole = tmp_path / f"{name}.npy"
    for number in (1, 2):
        content = Vectors(Path("/p"), (str(number),), torch.ones(1, 2), "m")
        write_vectors(tmp_path / f"{name}.{number}-of-2.npy", content)
        write_vectors(tmp_path / f"other {name}.{number}-of-3.npy", content)
    assert read_vectors(whole).paths == ("1", "2")
