import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from selftaught.data import (
    Batch,
    FileReader,
    ViewRequest,
    Views,
    embed_batches,
    find_images,
    in_batches,
    stack_embeddings,
)

CPU = torch.device("cpu")


def encode(images: torch.Tensor) -> dict[str, torch.Tensor]:
    rows = images.flatten(1).float()
    return {"f": rows.mean(1, keepdim=True), "g": rows[:, :3]}


@pytest.fixture
def paths(photos: Path, tmp_path: Path) -> list[str]:
    """Seven images, of which the second and the last two cannot be read."""
    images = find_images(photos)
    bad = tmp_path / "bad.jpg"
    bad.write_text("no")
    good = [images.path(i) for i in range(4)]
    return [good[0], str(bad), *good[1:], str(bad), str(bad)]


@pytest.mark.parametrize(("count", "at_once"), [(5, [5]), (19, [8, 8, 3])])
def test_a_cpu_embeds_few_large_images_at_once(count: int, at_once: list[int]) -> None:
    seen: list[int] = []

    def note(images: torch.Tensor) -> dict[str, torch.Tensor]:
        seen.append(len(images))
        return encode(images)

    images = torch.arange(count, dtype=torch.uint8)[:, None, None, None, None].expand(count, 1, 3, 288, 288)
    (batch,) = embed_batches(note, [Batch(images, list(range(count)), [])], CPU)
    assert seen == at_once
    assert batch.heads["f"][:, 0].tolist() == list(range(count))


@pytest.mark.parametrize(("view", "views"), [("center", 1), ("random", 2)])
@pytest.mark.parametrize("fill_to", [0, 5])
def test_files_are_embedded_in_order_and_failures_named(paths: list[str], view: str, views: int, fill_to: int) -> None:
    requests = [ViewRequest(path, view, seed) for seed, path in enumerate(paths)]  # type: ignore[arg-type]
    reader = FileReader(Views(8, 9, 9))
    batches = list(embed_batches(encode, reader.read(in_batches(requests, 2)), CPU, fill_to))
    assert [batch.files for batch in batches] == [2, 2, 2, 1]
    assert [[i for i, _ in batch.failures] for batch in batches] == [[1], [], [1], [0]]
    assert batches[-1].heads == {}
    advanced: list[int] = []
    heads, failures = stack_embeddings(batches, len(requests), advanced.append)
    good = [requests[i] for i in (0, 2, 3, 4)]
    alone = torch.cat([encode(batch.images.flatten(0, 1))["f"] for batch in reader.read([good])])
    assert torch.equal(heads["f"], alone)
    assert heads["g"].shape == (4 * views, 3)
    assert [i for i, _ in failures] == [1, 5, 6]
    assert advanced == [2, 2, 2, 1]


def test_no_more_than_a_batch_is_kept(paths: list[str]) -> None:
    kept: list[weakref.ref[torch.Tensor]] = []

    def remembered(images: torch.Tensor) -> dict[str, torch.Tensor]:
        heads = encode(images)
        kept.append(weakref.ref(heads["g"]))
        return heads

    def requests() -> Iterator[ViewRequest]:
        for _ in range(20):
            yield ViewRequest(paths[0], "center")

    for _ in embed_batches(remembered, FileReader(Views(8, 9, 9)).read(in_batches(requests(), 2)), CPU):
        assert sum(tensor() is not None for tensor in kept) <= 2
    assert len(kept) == 10
