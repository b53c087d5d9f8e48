import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from selftaught import Embedder
from selftaught.errors import ImageError, SelftaughtError, UsageError


def test_paths_images_and_arrays_give_the_same_vectors(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg"))[:3]
    images = [Image.open(path) for path in paths]
    arrays = [np.asarray(image) for image in images]
    vectors = embedder.encode(paths)
    assert vectors.shape == (3, embedder.dim)
    assert (vectors.dtype, vectors.device.type) == (torch.float32, "cpu")
    sames: list[list[Any]] = [[str(path) for path in paths], images, arrays, [array / 255 for array in arrays]]
    for same in (*sames, [paths[0], images[1], arrays[2]]):
        torch.testing.assert_close(embedder.encode(same), vectors, rtol=1e-4, atol=1e-5)


def test_batches_and_worker_processes_change_nothing(embedder: Embedder, photos: Path) -> None:
    paths = sorted(photos.rglob("*.jpg")) * 4
    few = embedder.encode(paths[:24], batch_size=7)
    torch.testing.assert_close(embedder.encode(paths), few.repeat(4, 1), rtol=1e-4, atol=1e-5)


def test_no_images_give_no_vectors_and_one_must_be_in_a_list(embedder: Embedder) -> None:
    assert embedder.encode([]).shape == (0, embedder.dim)
    with pytest.raises(TypeError, match="list"):
        embedder.encode("photo.jpg")
    with pytest.raises(TypeError, match="list"):
        embedder.encode(np.zeros((40, 60, 3)))  # type: ignore[arg-type]


def test_a_file_that_cannot_be_read_is_named(embedder: Embedder, tmp_path: Path) -> None:
    gone: list[list[Any]] = [[tmp_path / "gone.jpg"], [tmp_path / "gone.jpg", Image.new("RGB", (9, 9))]]
    for images in gone:
        with pytest.raises(ImageError, match=r"gone\.jpg: no such file"):
            embedder.encode(images)


def test_a_saved_model_is_the_same_model(embedder: Embedder, photos: Path, tmp_path: Path) -> None:
    embedder.save(tmp_path / "copy")
    image = next(photos.rglob("*.jpg"))
    assert torch.equal(Embedder.load(tmp_path / "copy", "cpu").encode([image]), embedder.encode([image]))


def test_damaged_and_foreign_models_are_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    def broken(name: str, content: bytes) -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(run, tmp_path / "run")
        (tmp_path / "run" / name).write_bytes(content)
        return tmp_path / "run"

    weights, description = (run / "model.safetensors").read_bytes(), json.loads((run / "model.json").read_text())
    cases = [
        ("model.safetensors", weights[: len(weights) // 2], "cannot load"),
        ("model.json", b"{", "damaged"),
        ("model.json", json.dumps(description | {"format": 9}).encode(), "another version"),
        ("model.json", json.dumps(description | {"dim": 5}).encode(), "cannot load"),
        ("model.json", json.dumps(description | {"dim": "x"}).encode(), "does not describe"),
        ("model.json", json.dumps(description | {"backbone": 5}).encode(), "does not describe"),
        ("model.json", json.dumps(description | {"preprocessing": {"x": 1}}).encode(), "does not describe"),
    ]
    for name, content, hint in cases:
        with pytest.raises(SelftaughtError, match=hint) as caught:
            Embedder.load(broken(name, content))
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no device"):
        Embedder.load(run, device="warp")
