import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from selftaught.data import Views, center_view

LENGTHS = st.integers(1, 120)


@given(height=LENGTHS, width=LENGTHS, size=st.integers(1, 40), more=st.integers(0, 12), seed=st.integers(0, 999))
@settings(max_examples=150, deadline=None)
def test_tensor_operations_give_the_same_pixels_as_pillow(
    height: int, width: int, size: int, more: int, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    by_pillow = Views(size, size + more, size)(Image.fromarray(pixels), "center")
    assert torch.equal(center_view(torch.from_numpy(pixels)[None], size, size + more), by_pillow.float())


@pytest.mark.parametrize(("height", "width"), [(30, 4000), (4000, 30), (700, 900), (900, 700)])
def test_long_and_large_images_too_and_several_at_once(height: int, width: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    by_pillow = torch.cat([Views(64, 73, 73)(Image.fromarray(image), "center") for image in pixels])
    assert torch.equal(center_view(torch.from_numpy(pixels), 64, 73), by_pillow.float())


def test_the_view_is_that_of_one_resize_of_the_box() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    side = 70 * 64 / 73
    left, top = (70 - side) / 2, (90 - side) / 2
    whole = image.resize((64, 64), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    view = Views(64, 73, 73)(image, "center")[0].permute(1, 2, 0).int()
    assert int((view - torch.from_numpy(np.array(whole)).int()).abs().max()) <= 1  # rounded in another order
