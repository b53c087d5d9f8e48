"""One image file → upright RGB pixels, as a viewer would show them."""

import io
import math
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError, features

from selftaught.data.tar_index import Member, find_member, read_member
from selftaught.errors import ImageError

EXTENSIONS = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
FORMATS: tuple[str, ...] = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
HEIC, AVIF = frozenset({".heic", ".heif"}), frozenset({".avif"})
PHOTOS = (*EXTENSIONS, *HEIC, *AVIF)
"""The endings of all photos. Those that cannot be read here are left out with a reason, not in silence."""
NO_IMAGE = "not an image that can be read (JPEG, PNG, WebP, AVIF, BMP, TIFF or GIF)"
if features.check("avif"):
    EXTENSIONS, FORMATS = EXTENSIONS | AVIF, (*FORMATS, "AVIF")
with suppress(ImportError):
    import pillow_heif

    pillow_heif.register_heif_opener()
    EXTENSIONS, FORMATS = EXTENSIONS | HEIC, (*FORMATS, "HEIF")
Stamp = tuple[int, int]
"""A file's size in bytes and its time of change in ns: either differs after a change."""


def open_image(path: str | os.PathLike[str], least: int | None = None) -> Image.Image:
    """Read an image as RGB: EXIF rotation applied, first frame, transparency on white, 16 bits scaled to 8.

    ``path``: a file, or a member of a tar shard; plain text such as "000.tar/a.jpg" is looked up in the shard.
    ``least``: a large JPEG may be read at a half, a quarter or an eighth of its size, if its short side is still this
    long; that is several times faster.

    Raises:
        ImageError: with the reason on one line (without the path), if it cannot be read in full.
    """
    with _loaded(path, least) as image:
        return to_rgb(image)


def has_plain_colors(path: str | os.PathLike[str]) -> bool:
    """Whether an image holds gray or RGB as such: no palette, no CMYK, no single bits, nowhere transparent.

    Raises:
        ImageError: as :func:`open_image` does.
    """
    with _loaded(path, least=1) as image:
        if image.mode in ("1", "P", "PA", "CMYK"):
            return False
        return not image.has_transparency_data or image.convert("RGBA").getchannel("A").getextrema() == (255, 255)


def can_be_read(path: str | os.PathLike[str]) -> bool:
    try:
        open_image(path, least=1)
    except ImageError:
        return False
    return True


def stamp(path: str | os.PathLike[str]) -> Stamp:
    """The stamp of an image; for a member of a tar shard, the shard's time of change.

    For a file that is gone, it is one that no file has: reading the image will report it.
    """
    try:
        status = os.stat(path.archive if isinstance(path, Member) else path)  # noqa: PTH116
    except OSError:
        return -1, -1
    changed = (status.st_mtime_ns + 2**63) % 2**64 - 2**63  # it is stored in 64 bits, which end in the year 2262
    return path.size if isinstance(path, Member) else status.st_size, changed


def to_rgb(image: Image.Image) -> Image.Image:
    """Any Pillow image as upright 8-bit RGB."""
    try:
        image = ImageOps.exif_transpose(image)
    except Exception:  # broken metadata is no reason to drop the picture
        image = image.copy()
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.mode == "CMYK":
        return _from_cmyk(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def from_array(array: np.ndarray) -> Image.Image:
    """H×W, H×W×1, H×W×3 or H×W×4 values (integers up to 255, uint16, or floats within [0, 1]) as RGB."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or 0 in array.shape:
        shape = "×".join(map(str, array.shape)) or "a single value"
        raise ImageError(f"an image array must be H×W, H×W×3 or H×W×4, but is {shape}")
    whole = np.issubdtype(array.dtype, np.integer)
    if array.dtype == np.uint16 or (np.issubdtype(array.dtype, np.floating) and 0 <= array.min() <= array.max() <= 1):
        array = _eight_bits(array)
    elif whole and array.min() >= 0 and array.max() <= 255:
        array = array.astype(np.uint8)
    else:
        raise ImageError(
            f"an image array holds integers from 0 to 255, uint16, or floats from 0 to 1, not {array.dtype}"
        )
    return to_rgb(Image.fromarray(np.ascontiguousarray(array)))


@contextmanager
def _loaded(path: str | os.PathLike[str], least: int | None) -> Iterator[Image.Image]:
    """An image as its file holds it, read in full."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(_content(path), formats=FORMATS) as image:
            if least is not None:
                scale = least / min(image.size)
                image.draft(None, (math.ceil(image.width * scale), math.ceil(image.height * scale)))
            image.load()
            yield image
    except ImageError:
        raise
    except UnidentifiedImageError:
        ending = os.path.splitext(path)[1].lower()  # noqa: PTH122
        if ending in HEIC - EXTENSIONS:
            raise ImageError("HEIC photos need another package: pip install 'selftaught[heic]'") from None
        if ending in AVIF - EXTENSIONS:
            raise ImageError("AVIF photos are not read here; save it as JPEG") from None
        raise ImageError(NO_IMAGE) from None
    except Image.DecompressionBombError:
        raise ImageError("over 178 megapixels; make it smaller") from None
    except (FileNotFoundError, NotADirectoryError):
        raise ImageError("no such file") from None
    except PermissionError:
        raise ImageError("no permission to read") from None
    except MemoryError:
        raise ImageError("too large for the memory") from None
    except Exception as error:  # decoders can raise anything on damaged files
        if isinstance(error, OSError) and error.strerror:  # of the system
            raise ImageError(error.strerror) from None
        if "truncated" in str(error):
            raise ImageError("damaged: the file ends too early") from None
        raise ImageError(f"damaged: {' '.join(str(error).split()) or type(error).__name__}") from None


def _content(path: str | os.PathLike[str]) -> str | os.PathLike[str] | io.BytesIO:
    """The input for Pillow: the path of a file, or the bytes of a member of a shard."""
    member = path if isinstance(path, Member) else None
    if member is None:
        try:
            status = os.stat(path)  # noqa: PTH116
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait forever
                closed = stat.S_ISDIR(status.st_mode) and not os.access(path, os.R_OK | os.X_OK)
                raise ImageError("no permission to read" if closed else "not a file but a folder, a pipe or a device")
            if status.st_size == 0:
                raise ImageError("empty file")
            return path
        except NotADirectoryError:  # a part of the path is a file, perhaps a shard
            member = find_member(os.fspath(path))
            if member is None:
                raise
    if member.size == 0:
        raise ImageError("empty file")
    content = read_member(member)
    if len(content) < member.size:
        raise ImageError("cut off: the shard has become shorter")
    return io.BytesIO(content)


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """16-bit, 32-bit and float samples → 0…255: floats within [0, 1] and the full 16-bit range map to the ends."""
    samples = np.nan_to_num(values.astype(np.float64))
    if np.issubdtype(values.dtype, np.floating):
        low, high = min(0.0, samples.min()), max(1.0, samples.max())
    else:
        low, high = 0.0, max(65535.0, samples.max())
    scaled: np.ndarray = np.round((samples - low) / (high - low) * 255).astype(np.uint8)
    return scaled


def _from_cmyk(image: Image.Image) -> Image.Image:
    if profile := image.info.get("icc_profile"):
        with suppress(ImageCms.PyCMSError, OSError, TypeError, ValueError):  # a broken profile is ignored
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            converted = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
            if converted is not None:
                return converted
    return image.convert("RGB")
