from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from selftaught.data import FileReader, ViewRequest, Views, find_images, view_seed
from selftaught.data.crop_boxes import random_boxes, uniforms

VIEWS = Views(size=32, resize=36, squash=36)


def gradient(width: int, height: int) -> Image.Image:
    pixels = torch.stack(
        [
            torch.linspace(0, 255, width).expand(height, width),
            torch.linspace(0, 255, height)[:, None].expand(height, width),
            torch.full((height, width), 90.0),
        ]
    )
    image: Image.Image = F.to_pil_image(pixels.to(torch.uint8))
    return image


@pytest.mark.parametrize("size", [(100, 60), (60, 100), (300, 301), (20, 20)])
def test_center_view_is_resize_then_center_crop(size: tuple[int, int]) -> None:
    image = gradient(*size)
    plain = v2.Compose([v2.Resize(36), v2.CenterCrop(32), v2.PILToTensor()])(image)
    ours = VIEWS(image, "center")[0]
    assert (ours.int() - plain.int()).abs().float().mean() < 2


def test_center_view_of_a_long_strip_stays_small() -> None:
    assert VIEWS(Image.new("RGB", (2, 30000), "red"), "center").shape == (1, 3, 32, 32)


def test_squash_shows_the_whole_image() -> None:
    view = VIEWS(gradient(200, 50), "squash")[0].float()
    assert view.shape == (3, 36, 36)
    assert view[0, :, 0].max() < 10
    assert view[0, :, -1].min() > 245


def test_random_views_depend_on_the_seed_alone() -> None:
    image = gradient(100, 60)
    first = VIEWS(image, "random", 7)
    assert torch.equal(first, VIEWS(image, "random", 7))
    assert not torch.equal(first, VIEWS(image, "random", 8))
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (40, 900)])
def test_random_boxes_are_distributed_as_torchvisions(size: tuple[int, int]) -> None:
    width, height = size
    theirs = v2.RandomResizedCrop(32, scale=(0.16, 1.0))
    torch.manual_seed(0)
    plain = [theirs.make_params([torch.empty(3, height, width)]) for _ in range(2000)]
    expected = torch.tensor([[p["left"], p["top"], p["width"], p["height"]] for p in plain]).double()
    found, flips = random_boxes(np.tile(size, (1000, 1)), np.arange(1000), (0.16, 1.0))
    boxes = torch.from_numpy(found).flatten(0, 1).double()
    ours = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1)
    tolerance = 4 * expected.std(0) / 2000**0.5 + 0.5
    assert ((ours.mean(0) - expected.mean(0)).abs() < 1.5 * tolerance).all()
    assert ((ours.std(0) - expected.std(0)).abs() < 1.5 * tolerance).all()
    if ours.std(0).min() > 1:  # and not only mean and deviation: areas and shapes have the same quantiles
        for one, other in ((ours, expected), (ours[:, 2:].log(), expected[:, 2:].log())):
            quantiles = torch.linspace(0.05, 0.95, 10, dtype=torch.float64)
            apart = (one.quantile(quantiles, 0) - other.quantile(quantiles, 0)).abs()
            assert (apart < 0.15 * other.std(0) + 0.5 * (one is ours)).all()
    assert (boxes >= 0).all()
    assert (boxes[:, 2] <= width).all()
    assert (boxes[:, 3] <= height).all()
    assert 0.45 < flips.mean() < 0.55


@pytest.mark.parametrize("size", [(512, 256), (256, 1024)])
def test_boxes_of_the_images_shape_are_crops_of_the_squashed_image(size: tuple[int, int]) -> None:
    side = 227 / 256
    boxes, flips = random_boxes(np.tile(size, (500, 1)), np.arange(500), (side**2, side**2), shape="image")
    squashed = boxes.reshape(-1, 4) * np.tile([256 / size[0], 256 / size[1]], 2)
    assert (squashed[:, 2:] - squashed[:, :2] == 227).all()
    assert (squashed[:, :2].min(0) == 0).all()
    assert (squashed[:, :2].max(0) == 256 - 227).all()
    assert (np.bincount(squashed[:, 0].astype(int)) > 0).all(), "anywhere"
    assert 0.4 < flips.mean() < 0.6


def test_random_boxes_of_many_images_are_those_of_each_alone() -> None:
    sizes, seeds = np.array([[100, 60], [30, 900], [1, 1]]), np.array([5, 2**62, 0])
    boxes, flips = random_boxes(sizes, seeds, (0.16, 1.0))
    for i in range(3):
        box, flip = random_boxes(sizes[i : i + 1], seeds[i : i + 1], (0.16, 1.0))
        assert (box[0] == boxes[i]).all()
        assert (flip[0] == flips[i]).all()


def test_uniform_numbers_are_uniform_and_independent() -> None:
    numbers = torch.from_numpy(uniforms(np.arange(2000), 20))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert (numbers.mean(0) - 0.5).abs().max() < 0.03
    assert (numbers.std(0) - 12**-0.5).abs().max() < 0.02
    correlated = torch.corrcoef(numbers.T) - torch.eye(20)
    assert correlated.abs().max() < 0.1
    assert abs(float(torch.corrcoef(torch.stack([numbers[1:, 0], numbers[:-1, 0]]))[0, 1])) < 0.1


def test_a_random_view_is_torchvisions_resized_crop_of_its_box() -> None:
    image = gradient(100, 60)
    boxes, flips = random_boxes(np.array([[100, 60]]), np.array([5]), (0.16, 1.0))
    for view, (left, top, right, bottom), flip in zip(VIEWS(image, "random", 5), boxes[0], flips[0], strict=True):
        plain = F.pil_to_tensor(F.resized_crop(image, top, left, bottom - top, right - left, [32, 32]))
        assert torch.equal(view, plain.flip(2) if flip else plain)


def test_random_views_of_a_single_pixel_work() -> None:
    assert VIEWS(Image.new("RGB", (1, 1), "red"), "random", 0).shape == (2, 3, 32, 32)


def test_seeds_of_neighboring_keys_differ() -> None:
    assert len({view_seed(0, e, s, p) for e in range(5) for s in range(5) for p in range(5)}) == 125


@pytest.mark.parametrize("workers", [0, 2])
def test_a_reader_serves_pass_after_pass_in_order(photos: Path, workers: int) -> None:
    images = find_images(photos)
    reader = FileReader(VIEWS, workers)
    requests = [ViewRequest(images.path(i), "center") for i in range(len(images))]
    try:
        for size in (5, 24):
            batches = list(reader.read([requests[s : s + size] for s in range(0, 24, size)]))
            got = torch.cat([batch.images for batch in batches])
            expected = torch.stack([VIEWS(Image.open(request.path), "center") for request in requests])
            assert torch.equal(got, expected)
        (batch,) = reader.read([[ViewRequest(request.path, "random", 3) for request in requests]])
        assert batch.images.shape == (24, 2, 3, 32, 32)
    finally:
        reader.close()


def test_a_reader_leaves_out_what_it_cannot_read_and_says_why(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").touch()
    good = find_images(photos).path(0)
    requests = [
        ViewRequest(good, "center"),
        ViewRequest(str(tmp_path / "bad.jpg"), "center"),
        ViewRequest(good, "center"),
    ]
    (batch,) = FileReader(VIEWS).read([requests])
    assert (batch.positions, batch.failures) == ([0, 2], [(1, "empty file")])
    (batch,) = FileReader(VIEWS).read([requests[1:2]])
    assert len(batch.images) == 0
