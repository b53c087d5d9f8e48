from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as F

from selftaught.data import CachedReader, DecodedCache, FileReader, ImageReader, ViewRequest, Views, find_images
from selftaught.data.augment import _color_maps, change_colors

PLAIN, COLORED = Views(32, 36, 36), Views(32, 36, 36, color=1.0)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
UNCHANGED, NOT_GRAY, MIDDLE = 0.9, 0.9, 0.5
"""Numbers drawn that leave colors as they are."""


def pictures(count: int = 4) -> torch.Tensor:
    """Away from black and white, so that nothing is clamped."""
    return torch.randint(80, 150, (count, 3, 20, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def drawn(**changes: float) -> np.ndarray:
    row = {
        "changed": 0.0,
        "brightness": MIDDLE,
        "contrast": MIDDLE,
        "saturation": MIDDLE,
        "hue": MIDDLE,
        "gray": NOT_GRAY,
    }
    return np.tile(list((row | changes).values()), (4, 1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("change", ["brightness", "contrast", "saturation"])
def test_each_change_is_torchvisions(change: str, value: float, device: str) -> None:
    images = pictures()
    ours = change_colors(images.to(device), drawn(**{change: value}), 1.0).cpu()
    plain = getattr(F, f"adjust_{change}")(images, 1 + 0.4 * (2 * value - 1))
    assert (ours.int() - plain.int()).abs().max() <= 2


def test_hue_turns_colors_and_keeps_brightness() -> None:
    images = pictures()
    turned = change_colors(images, drawn(hue=0.0), 1.0)
    assert (turned.float() - images.float()).abs().mean() > 3
    gray, before = (F.rgb_to_grayscale(views).float() for views in (turned, images))
    assert (gray - before).abs().max() <= 2
    back = change_colors(turned, drawn(hue=1.0), 1.0)
    assert (back.int() - images.int()).abs().max() <= 3


def test_some_views_lose_their_colors_and_some_stay_as_they_are() -> None:
    images = pictures()
    gray = change_colors(images, drawn(gray=0.0), 1.0)
    assert (gray.int() - F.rgb_to_grayscale(images, 3).int()).abs().max() <= 1
    assert torch.equal(change_colors(images, drawn(changed=UNCHANGED, brightness=0.0, hue=0.0), 1.0), images)
    numbers = np.random.default_rng(0).random((4000, 6))
    matrices, _ = _color_maps(numbers, 1.0)
    lost = np.abs(matrices - matrices[:, :1]).max((1, 2)) < 1e-6
    assert 0.17 < lost.mean() < 0.23
    assert 0.13 < (np.abs(matrices - np.eye(3)).max((1, 2)) < 1e-6).mean() < 0.19


def test_no_strength_changes_nothing() -> None:
    images = pictures()
    assert torch.equal(change_colors(images, drawn(brightness=0.1, hue=0.9, gray=0.0), 0.0), images)


def read(reader: ImageReader, requests: list[ViewRequest], at_once: int = 5) -> torch.Tensor:
    batches = [requests[start : start + at_once] for start in range(0, len(requests), at_once)]
    try:
        return torch.cat([batch.images.cpu() for batch in reader.read(batches)])
    finally:
        reader.close()


def requests(photos: Path, view: str = "random") -> list[ViewRequest]:
    images = find_images(photos)
    return [ViewRequest(images.path(i), view, 100 + i) for i in range(len(images))]  # type: ignore[arg-type]


def cached(views: Views, folder: Path) -> CachedReader:
    return CachedReader(views, 100, 0, torch.device("cpu"), DecodedCache("photos", folder))


def test_both_readers_change_colors_alike_and_each_view_otherwise(photos: Path, tmp_path: Path) -> None:
    asked = requests(photos)
    plain, colored = read(FileReader(PLAIN), asked), read(FileReader(COLORED), asked)
    assert torch.equal(read(cached(COLORED, tmp_path), asked), colored)
    assert torch.equal(read(FileReader(COLORED, workers=2), asked, at_once=24), colored)
    changed = (plain != colored).flatten(2).any(2)
    assert 0.6 < changed.float().mean() <= 1.0
    same = [ViewRequest(asked[0].path, "random", seed) for seed in (1, 2, 1)]
    one, two, three = read(FileReader(COLORED), same)
    assert torch.equal(one, three)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("view", ["squash", "center"])
def test_views_to_embed_keep_their_colors(photos: Path, tmp_path: Path, view: str) -> None:
    plain = read(FileReader(PLAIN), requests(photos, view))
    assert torch.equal(read(FileReader(COLORED), requests(photos, view)), plain)
    assert torch.equal(read(cached(COLORED, tmp_path), requests(photos, view)), plain)
