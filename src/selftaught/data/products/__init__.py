"""A small data set drawn on the spot: made-up products, each in several photos. For the demo and for tests."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from numpy.random import default_rng
from PIL import Image

from selftaught.data.embed_files import Advance
from selftaught.data.products.photo import take_photo
from selftaught.data.products.product import random_product


def make_products(
    folder: str | os.PathLike[str],
    *,
    products: int = 240,
    photos: int = 8,
    size: int = 96,
    seed: int = 0,
    class_folders: bool = False,
    advance: Advance = lambda _: None,
) -> tuple[Path, Path]:
    """Draw the data set into a new folder; the same seed gives the same files.

    Args:
        folder: must not exist yet, or be empty. It appears when all photos are drawn, or not at all.
        products: the first half is for training, the other half for testing.
        photos: the number of photos of each product.
        size: height and width of a photo in pixels.
        seed: a photo depends on the seed, its product's number and its own number, and on nothing else.
        class_folders: put the training photos into one subfolder per product too, for methods that need labels.
        advance: called after each photo, with 1.

    Returns:
        The folder of training photos, flat and in no order unless ``class_folders``, and the folder of test photos, one
        subfolder per product.
    """
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name a new folder, or delete this one first")
    if products < 2 or photos < 1:
        raise ValueError(f"there must be at least 2 products and 1 photo of each, not {products} and {photos}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    in_training = products // 2
    names = default_rng((seed, 0, 0)).permutation(in_training * photos)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-", suffix=".tmp") as temporary:
        draft = Path(temporary, "draft")
        for part in ("train", "test"):
            (draft / part).mkdir(parents=True)
        for number in range(products):
            # Counted from 1: zeros at the end of a seed change nothing, so photo 0 would share its product's stream.
            product = random_product(default_rng((seed, number + 1, 0)))
            for photo in range(photos):
                done = number * photos + photo
                place = draft / ("train" if number < in_training else "test")
                if number < in_training and not class_folders:
                    path = place / f"{names[done]:04d}.jpg"
                else:
                    path = place / f"{product.kind}-{number:03d}" / f"{photo}.jpg"
                    path.parent.mkdir(exist_ok=True)
                take_photo(product, size, default_rng((seed, number + 1, photo + 1))).save(path, quality=92)
                advance(1)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    return folder / "train", folder / "test"


def draw_photos(count: int = 8) -> list[Image.Image]:
    """Photos of made-up products, upright and sideways, to try a model with."""
    rngs = [default_rng((0, number + 1)) for number in range(count)]
    photos = [take_photo(random_product(rng), 96, rng) for rng in rngs]
    return [photo.crop((0, 0, 96, 80) if number % 2 else (0, 0, 71, 96)) for number, photo in enumerate(photos)]
