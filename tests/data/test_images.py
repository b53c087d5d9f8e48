from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from selftaught.data import find_images, from_array, has_plain_colors, images, open_image
from selftaught.errors import ImageError


def halves(mode: str, left: object, right: object) -> Image.Image:
    """40×20, the left half in one color and the right half in another."""
    image = Image.new(mode, (40, 20), left)  # type: ignore[arg-type]
    image.paste(right, (20, 0, 40, 20))  # type: ignore[arg-type]
    return image


def corners(image: Image.Image) -> tuple[tuple[int, ...], tuple[int, ...]]:
    left, right = image.getpixel((5, 10)), image.getpixel((image.width - 6, image.height - 10))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    return left, right


def close(a: tuple[int, ...], b: tuple[int, ...], by: int = 12) -> bool:
    return all(abs(x - y) <= by for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.bmp", "a.tif", "a.gif"])
def test_every_format_is_read_as_rgb(tmp_path: Path, name: str) -> None:
    halves("RGB", (200, 30, 30), (30, 30, 200)).save(tmp_path / name)
    image = open_image(tmp_path / name)
    assert (image.mode, image.size) == ("RGB", (40, 20))
    left, right = corners(image)
    assert close(left, (200, 30, 30), 40)
    assert close(right, (30, 30, 200), 40)


def test_gray_palette_and_one_bit_become_rgb(tmp_path: Path) -> None:
    for mode, left, right in (("L", 60, 190), ("P", 60, 190), ("1", 0, 1)):
        image = halves(mode, left, right)
        if mode == "P":
            image.putpalette([v for i in range(256) for v in (i, i, i)])
        image.save(tmp_path / "x.png")
        a, b = corners(open_image(tmp_path / "x.png"))
        expected = (0, 255) if mode == "1" else (left, right)
        assert (a, b) == ((expected[0],) * 3, (expected[1],) * 3)


def test_transparency_is_shown_on_white(tmp_path: Path) -> None:
    halves("RGBA", (200, 0, 0, 0), (200, 0, 0, 255)).save(tmp_path / "a.png")
    assert corners(open_image(tmp_path / "a.png")) == ((255, 255, 255), (200, 0, 0))
    halves("RGB", (200, 0, 0), (9, 9, 9)).save(tmp_path / "rgb.png", transparency=(9, 9, 9))
    assert corners(open_image(tmp_path / "rgb.png")) == ((200, 0, 0), (255, 255, 255))
    palette = halves("P", 0, 1)
    palette.putpalette([10, 10, 10, 200, 0, 0])
    palette.save(tmp_path / "p.png", transparency=0)
    assert corners(open_image(tmp_path / "p.png")) == ((255, 255, 255), (200, 0, 0))


def test_plain_colors_are_gray_or_rgb_and_nowhere_transparent(tmp_path: Path) -> None:
    def is_plain(image: Image.Image, name: str = "a.png") -> bool:
        image.save(tmp_path / name)
        return has_plain_colors(tmp_path / name)

    for mode in ("L", "RGB", "RGBA", "LA", "I;16"):
        assert is_plain(Image.new(mode, (4, 4), "white" if mode != "I;16" else 9)), mode
    for mode in ("P", "1"):
        assert not is_plain(Image.new(mode, (4, 4))), mode
    assert not is_plain(Image.new("CMYK", (4, 4)), "a.jpg")
    assert not is_plain(halves("RGBA", (200, 0, 0, 254), (200, 0, 0, 255)))
    with pytest.raises(ImageError, match="no such file"):
        has_plain_colors(tmp_path / "none.png")


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    pixels = np.full((20, 40), 257 * 50, np.uint16)
    pixels[:, 20:] = 257 * 180
    for name in ("a.png", "a.tif"):
        Image.fromarray(pixels).save(tmp_path / name)
        assert corners(open_image(tmp_path / name)) == ((50,) * 3, (180,) * 3)


def test_cmyk_is_not_inverted(tmp_path: Path) -> None:
    halves("CMYK", (0, 255, 255, 0), (255, 255, 0, 0)).save(tmp_path / "a.jpg", quality=95)
    left, right = corners(open_image(tmp_path / "a.jpg"))
    assert left[0] > 180 > left[2] + 60
    assert right[2] > right[0]


@pytest.mark.parametrize("profile", [b"no profile", bytes(400), b"\0\0\1\x90" + b"x" * 396])
def test_a_broken_color_profile_is_ignored(tmp_path: Path, profile: bytes) -> None:
    image = halves("CMYK", (0, 255, 255, 0), (255, 255, 0, 0))
    image.save(tmp_path / "plain.jpg", quality=95)
    image.save(tmp_path / "broken.jpg", quality=95, icc_profile=profile)
    assert Image.open(tmp_path / "broken.jpg").info["icc_profile"] == profile
    assert open_image(tmp_path / "broken.jpg").tobytes() == open_image(tmp_path / "plain.jpg").tobytes()


def test_exif_rotation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    halves("RGB", "red", "blue").save(tmp_path / "a.jpg", exif=exif, quality=95)
    image = open_image(tmp_path / "a.jpg")
    assert image.size == (20, 40)
    top = image.getpixel((10, 5))
    assert isinstance(top, tuple)
    assert top[0] > 200


def test_of_an_animation_the_first_frame_is_read(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    pixel = open_image(tmp_path / "a.gif").getpixel((4, 4))
    assert isinstance(pixel, tuple)
    assert close(pixel, (255, 0, 0))


def test_one_pixel_is_an_image(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), "red").save(tmp_path / "a.png")
    assert open_image(tmp_path / "a.png").size == (1, 1)


@pytest.mark.parametrize("ending", ["heic", "avif"])
def test_photos_of_phones_are_read(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("pillow_heif")
    file = tmp_path / f"a.{ending}"
    halves("RGB", (255, 0, 0), (0, 0, 255)).save(file, quality=95)
    left, right = corners(open_image(file))
    assert close(left, (255, 0, 0))
    assert close(right, (0, 0, 255))
    assert find_images(tmp_path).files == (file.name,)


def test_formats_that_are_not_read_here_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "FORMATS", ("JPEG",))
    monkeypatch.setattr(images, "EXTENSIONS", frozenset({".jpg"}))
    for ending, reason in (("HEIC", "need another package: pip install"), ("avif", "not read here; save it as JPEG")):
        (tmp_path / f"phone.{ending}").write_bytes(b"\0\0\0\x18ftypheic" + bytes(50))
        with pytest.raises(ImageError, match=f"^{ending.upper()} photos (are )?{reason}"):
            open_image(tmp_path / f"phone.{ending}")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jpg"
    Image.effect_noise((300, 300), 50).save(whole)
    (tmp_path / "cut.jpg").write_bytes(whole.read_bytes()[:4000])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 50)
    (tmp_path / "circle.jpg").symlink_to("circle.jpg")
    for name, reason in (
        ("circle.jpg", "^Too many levels of symbolic links$"),
        ("cut.jpg", "^damaged: the file ends too early$"),
        ("empty.jpg", "empty file"),
        ("text.jpg", "not an image"),
        ("damaged.png", "damaged|not an image"),
        ("missing.jpg", "no such file"),
    ):
        with pytest.raises(ImageError, match=reason) as caught:
            open_image(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_disk_that_cannot_be_read_is_not_called_a_damaged_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(ImageError, match=r"^Input/output error$"):
        open_image(tmp_path / "a.png")


def test_a_giant_image_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (30000, 30000)).save(tmp_path / "giant.png")
    with pytest.raises(ImageError, match="megapixels"):
        open_image(tmp_path / "giant.png")


def test_arrays_of_all_kinds_become_rgb() -> None:
    gray = np.full((4, 6), 128, np.uint8)
    assert from_array(gray).getpixel((0, 0)) == (128, 128, 128)
    assert from_array(gray[:, :, None]).size == (6, 4)
    assert from_array(np.full((4, 6, 3), 0.5)).getpixel((0, 0)) == (128, 128, 128)
    assert from_array(np.full((4, 6, 3), 257 * 128, np.uint16)).getpixel((0, 0)) == (128, 128, 128)
    assert from_array(np.zeros((4, 6, 4), np.uint8)).getpixel((0, 0)) == (255, 255, 255)
    assert from_array(np.full((4, 6), 128, np.int64)).getpixel((0, 0)) == (128, 128, 128)
    for wrong in (np.full((4, 6), 300), np.full((4, 6), 128.0), np.full((4, 6), -0.5), np.ones((4, 6), bool)):
        with pytest.raises(ImageError, match="an image array holds"):
            from_array(wrong)
    for size, shape in (((4, 6, 2), "4×6×2"), ((), "a single value")):
        with pytest.raises(ImageError, match=f"an image array must be H×W, H×W×3 or H×W×4, but is {shape}"):
            from_array(np.zeros(size, np.uint8))
