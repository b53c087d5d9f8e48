import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from selftaught.data.crop_boxes import random_boxes
from selftaught.data.device_crops import Packed, batched, resample, resize_crops

SIZES = [(90, 70), (70, 200), (33, 33), (500, 41), (224, 300)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def pictures() -> list[np.ndarray]:
    """Smooth pictures with some noise, as photos are."""
    rng = np.random.default_rng(0)
    coarse = [Image.fromarray(rng.integers(0, 255, (6, 7, 3), np.uint8)).resize(size) for size in SIZES]
    return [(np.asarray(p) * 0.9 + rng.integers(0, 25, (p.height, p.width, 3))).astype(np.uint8) for p in coarse]


def packed(images: list[np.ndarray], device: str) -> Packed:
    sizes = np.array([[image.shape[1], image.shape[0]] for image in images])
    counts = sizes.prod(1)
    pixels = torch.from_numpy(np.concatenate([image.reshape(-1, 3) for image in images]))
    return Packed(pixels.to(device), counts.cumsum() - counts, sizes)


def in_batches(images: Packed, which: np.ndarray, boxes: np.ndarray, flips: np.ndarray, size: int) -> torch.Tensor:
    """What a GPU does, on any device."""
    return batched(images, which, boxes, flips, size, resample)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("size", [16, 64, 224])
def test_crops_are_torchvisions_resized_crops(device: str, together: bool, size: int) -> None:
    images = pictures()
    which = np.repeat(np.arange(len(images)), 8)
    boxes, flips = random_boxes(np.array(SIZES)[which], np.arange(len(which)), (0.16, 1.0))
    boxes, flips = boxes[:, 0], flips[:, 0]
    function = in_batches if together else resize_crops
    views = function(packed(images, device), which, boxes, flips, size).cpu()
    assert views.shape == (len(which), 3, size, size)
    for view, image, (left, top, right, bottom), flip in zip(views, which, boxes.tolist(), flips, strict=True):
        picture = torch.from_numpy(images[image]).permute(2, 0, 1)
        plain = v2.functional.resized_crop(picture, top, left, bottom - top, right - left, [size, size], antialias=True)
        plain = plain.flip(2) if flip else plain
        apart = (view.int() - plain.int()).abs()
        assert apart.max() <= 2
        assert apart.float().mean() < 0.5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("together", [False, True])
def test_a_whole_image_at_its_own_size_is_itself(device: str, together: bool) -> None:
    image = np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)
    box, no = np.array([[0, 0, 40, 40]]), np.array([False])
    function = in_batches if together else resize_crops
    view = function(packed([image], device), np.array([0]), box, no, 40)[0]
    assert torch.equal(view.cpu(), torch.from_numpy(image).permute(2, 0, 1))


@pytest.mark.parametrize("together", [False, True])
def test_a_crop_never_shows_what_is_beside_it(together: bool) -> None:
    image = np.zeros((50, 50, 3), np.uint8)
    image[10:20, 30:40] = 255
    box, no = np.array([[30, 10, 40, 20]]), np.array([False])
    function = in_batches if together else resize_crops
    assert function(packed([image], "cpu"), np.array([0]), box, no, 7).min() == 255


@pytest.mark.gpu
def test_crops_on_a_gpu_do_not_make_the_host_wait() -> None:
    images = packed(pictures(), "cuda")
    boxes = np.array([[0, 0, 30, 30]])
    resize_crops(images, np.array([0]), boxes, np.array([True]), 32)
    torch.cuda.set_sync_debug_mode("error")
    try:
        resize_crops(images, np.array([0]), boxes, np.array([True]), 32)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_compiled_crops_are_the_same() -> None:
    images, compiled = packed(pictures(), "cuda"), torch.compile(resample, dynamic=True)
    for count in (3, 40, 17):
        which = np.arange(count) % len(SIZES)
        boxes, flips = random_boxes(np.array(SIZES)[which], np.arange(count), (0.16, 1.0))
        views = [resize_crops(images, which, boxes[:, 0], flips[:, 0], 64, how).int() for how in (None, compiled)]
        assert (views[0] - views[1]).abs().max() <= 1


@pytest.mark.gpu
def test_a_batch_too_large_for_one_canvas_is_cut_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    images, which = packed(pictures(), "cuda"), np.arange(20) % len(SIZES)
    boxes, flips = random_boxes(np.array(SIZES)[which], np.arange(20), (0.16, 1.0))
    whole = resize_crops(images, which, boxes[:, 0], flips[:, 0], 32)
    monkeypatch.setattr("selftaught.data.device_crops.CANVAS", 3 * 300 * 300)
    parts = resize_crops(images, which, boxes[:, 0], flips[:, 0], 32)
    assert (whole.int() - parts.int()).abs().max() <= 1
