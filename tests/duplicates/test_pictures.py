import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from selftaught.data import find_images, open_images
from selftaught.duplicates.pictures import (
    ALTERATIONS,
    Picture,
    best_first,
    examine,
    find_same_bytes,
    find_same_files,
    hash_picture,
    watermark,
)


def photo(seed: int = 0, size: tuple[int, int] = (64, 48)) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.NEAREST)


def scene(side: int = 256) -> Image.Image:
    """Shapes of several sizes with a little noise, as in a photo."""
    rng = np.random.default_rng(3)
    image = np.full((side, side, 3), 120.0)
    for _ in range(60):
        x, y, size = rng.integers(0, side, 3)
        image[y : y + size // 3, x : x + size // 3] = rng.integers(0, 255, 3)
    soft = Image.fromarray(image.astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.5))
    return Image.fromarray(np.clip(np.asarray(soft) + rng.normal(0, 1, image.shape), 0, 255).astype(np.uint8))


def ranked(folder: Path) -> list[str]:
    """The names of the pictures in a folder, the best first."""
    names = sorted(path.name for path in folder.iterdir())
    return [names[i] for i in best_first({i: examine(str(folder / name)) for i, name in enumerate(names)}, names)]


def test_equal_bytes_are_found_in_files_and_in_shards(tmp_path: Path) -> None:
    for name, seed in (("a.png", 0), ("b.png", 1), ("c.png", 0)):
        photo(seed).save(tmp_path / name)
    (tmp_path / "d.png").write_bytes((tmp_path / "b.png").read_bytes()[:-1] + b"x")
    images = find_images(tmp_path)
    assert find_same_bytes([images.path(i) for i in range(4)]) == [0, 1, 0, 3]
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for name in ("a.png", "b.png", "c.png"):
            archive.add(tmp_path / name, name)
    shards = open_images(str(tmp_path / "s.tar"))
    assert find_same_bytes([shards.path(i) for i in range(3)]) == [0, 1, 0]


def test_a_file_that_is_gone_equals_none(tmp_path: Path) -> None:
    paths = [str(tmp_path / "gone.png"), str(tmp_path / "gone too.png")]
    assert find_same_bytes(paths) == [0, 1]
    assert find_same_files(paths) == [0, 1]


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    os.mkfifo(tmp_path / "pipe.png")
    assert find_same_bytes([str(tmp_path / "empty.png"), str(tmp_path / "pipe.png")]) == [0, 1]


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_links_are_other_names_of_one_file(tmp_path: Path) -> None:
    photo().save(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("a.png")
    (tmp_path / "c.png").hardlink_to(tmp_path / "a.png")
    photo().save(tmp_path / "d.png")
    paths = [str(tmp_path / name) for name in ("a.png", "b.png", "c.png", "d.png")]
    assert find_same_files(paths) == [0, 0, 0, 3]


def test_the_largest_is_best_and_a_blurred_one_worst(tmp_path: Path) -> None:
    large, original = photo(size=(128, 96)), photo()
    large.save(tmp_path / "large.jpg", quality=20)
    original.save(tmp_path / "original.png")
    original.save(tmp_path / "jpeg.jpg", quality=95)
    original.filter(ImageFilter.GaussianBlur(2)).save(tmp_path / "blurred.png")
    names = ranked(tmp_path)
    assert names[0] == "large.jpg"
    assert names[-1] == "blurred.png"
    original.save(tmp_path / "again.bmp")
    seen = {path.name: examine(str(path)) for path in tmp_path.iterdir()}
    assert examine(str(tmp_path / "again.bmp")).pixels == seen["original.png"].pixels
    assert seen["jpeg.jpg"].pixels != seen["original.png"].pixels


def test_a_gray_copy_is_never_better_than_the_colored_photo_of_its_size(tmp_path: Path) -> None:
    original = photo()
    original.filter(ImageFilter.GaussianBlur(1)).save(tmp_path / "colored.jpg", quality=60)
    original.convert("L").save(tmp_path / "gray.jpg", quality=95)
    original.convert("L").convert("RGB").save(tmp_path / "gray.png")
    colored, *gray = (examine(str(tmp_path / name)) for name in ("colored.jpg", "gray.jpg", "gray.png"))
    for copy in gray:
        assert copy.sharpness > colored.sharpness
        assert best_first({0: copy, 1: colored}, ["a", "b"]) == [1, 0]


def test_neither_compression_nor_a_watermark_counts_as_sharp(tmp_path: Path) -> None:
    original = scene()
    original.save(tmp_path / "original.jpg", quality=95)
    for quality in (60, 80, 90):
        original.save(tmp_path / f"{quality}.jpg", quality=quality)
    watermark(original).save(tmp_path / "marked.jpg", quality=90)
    half = ALTERATIONS["resized"](original).resize(original.size, Image.Resampling.BICUBIC)
    half.save(tmp_path / "half.png")
    original.filter(ImageFilter.GaussianBlur(1)).save(tmp_path / "blurred.png")
    names = ranked(tmp_path)
    assert names[0] == "original.jpg"
    assert set(names[-2:]) == {"half.png", "blurred.png"}


def test_a_palette_cmyk_and_a_cutout_come_last(tmp_path: Path) -> None:
    original = scene()
    original.save(tmp_path / "original.jpg", quality=90)
    original.save(tmp_path / "palette.gif")
    original.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    cutout = original.convert("RGBA")
    cutout.paste((0, 0, 0, 0), (0, 0, 20, 20))
    cutout.save(tmp_path / "cutout.png")
    assert ranked(tmp_path)[0] == "original.jpg"


def test_of_equals_the_largest_file_then_the_oldest_then_the_first_name_is_best() -> None:
    def seen(size: int, changed: int) -> Picture:
        return Picture(2, 2, size, 1.0, "", True, True, changed)

    pictures = {0: seen(9, 5), 1: seen(9, 4), 2: seen(10, 7), 3: seen(9, 4)}
    assert best_first(pictures, ["a", "d", "b", "c"]) == [2, 3, 1, 0]


def test_alterations_change_a_picture_of_any_size() -> None:
    for size in ((1, 1), (7, 500), (64, 48)):
        image = photo(size=size)
        for name, alter in ALTERATIONS.items():
            other = alter(image)
            assert other.mode == "RGB"
            assert min(other.size) >= 1
            assert size == (1, 1) or other.size != size or other.tobytes() != image.tobytes(), name


def test_a_fingerprint_stays_where_a_picture_stays_the_same(tmp_path: Path) -> None:
    def prints(image: Image.Image) -> np.ndarray:
        image.save(tmp_path / "p.png")
        return hash_picture(str(tmp_path / "p.png"))

    original = photo(0, (160, 120))
    for way in ("resized", "recompressed", "watermarked"):
        assert (prints(original) != prints(ALTERATIONS[way](original))).sum() <= 6, way
    assert all((prints(original) != prints(photo(seed, (160, 120)))).sum() > 12 for seed in range(1, 10))
