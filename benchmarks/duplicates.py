"""Precision and recall of near-duplicates at the proposed threshold, beside perceptual hashes.

    python benchmarks/duplicates.py [--images FOLDER] [--most 800] [--copies 20] [--model tf_efficientnet_lite0]

Copies of photos are made in five ways, each with a strength drawn at random, and put among the photos: drawn products
with 8 photos of each, or the images of a folder. Every method then says which pairs are copies. A pair is right if both
come from one photo; a copy is found if it is paired with its original, or grouped with it. ``imagehash`` and
``imagededup`` are measured if they are installed.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from selftaught.data import find_images, open_image
from selftaught.data.products import make_products
from selftaught.duplicates import distances_of_known_copies, find_copies
from selftaught.duplicates.pictures import crop, mirror, recompress, resize, watermark
from selftaught.embedder import Embedder

Pair = tuple[str, str]


def alteration(way: str, rng: np.random.Generator) -> Callable[[Image.Image], Image.Image]:
    """One of the ways, with a strength drawn at random."""
    match way:
        case "resized":
            return partial(resize, scale=rng.uniform(0.4, 0.8))
        case "recompressed":
            return partial(recompress, quality=int(rng.integers(20, 60)))
        case "cropped":
            return partial(crop, kept=rng.uniform(0.85, 0.97))
        case "watermarked":
            return partial(watermark, text="PREVIEW", opacity=rng.uniform(0.3, 0.6))
    return mirror


WAYS = ("resized", "recompressed", "cropped", "mirrored", "watermarked")


def fill(folder: Path, source: Path, most: int, copies: int, seed: int) -> dict[str, str]:
    """Put photos and copies of some into one flat folder; the photo that each file is of, by the file's name."""
    rng = np.random.default_rng(seed)
    images = find_images(source)
    rows = np.unique(np.linspace(0, len(images) - 1, min(most, len(images))).round().astype(int))
    origin = {}
    for row in rows:
        name = f"{row:06d}.png"
        open_image(images.path(row)).save(folder / name)
        origin[name] = name
    for way in WAYS:
        for row in rng.choice(rows, min(copies, len(rows)), replace=False):
            altered = alteration(way, rng)(open_image(images.path(row)))
            name = f"{row:06d}-{way}.png"
            altered.save(folder / name)
            origin[name] = f"{row:06d}.png"
    return origin


def by_model(folder: Path, model: str) -> tuple[str, set[Pair]]:
    embedder = Embedder.load(model)
    images = find_images(folder)
    vectors, _ = embedder.encoding.encode_files(images.paths())
    found = find_copies(images, vectors, distances_of_known_copies(embedder, images, vectors))
    pairs: set[Pair] = set()
    for group in found.groups:
        names = sorted(images.files[copy.index] for copy in group.copies)
        pairs |= {(a, b) for i, a in enumerate(names) for b in names[i + 1 :]}
    limit = found.proposal.threshold
    return f"selftaught dedup ({model}, {'no threshold' if limit is None else f'{limit:.3f}'})", pairs


def by_imagehash(folder: Path, most: int) -> tuple[str, set[Pair]]:
    import imagehash

    names = sorted(path.name for path in folder.iterdir())
    bits = np.stack([imagehash.phash(open_image(folder / name)).hash.flatten() for name in names])
    different = (bits[:, None, :] != bits[None, :, :]).sum(2)
    close = np.argwhere(np.triu(different <= most, 1))
    return f"imagehash phash, at most {most} bits", {(names[a], names[b]) for a, b in close}


def by_imagededup(folder: Path) -> tuple[str, set[Pair]]:
    from imagededup.methods import PHash

    found = PHash(verbose=False).find_duplicates(image_dir=folder, num_enc_workers=0, num_dist_workers=0)
    pairs = {(min(a, b), max(a, b)) for a, others in found.items() for b in others}
    return "imagededup PHash, as it comes", pairs


def measure(pairs: Iterable[Pair], origin: dict[str, str]) -> list[str]:
    """Precision, recall, and recall of each way, in percent."""
    every = set(pairs)
    right = [pair for pair in every if origin[pair[0]] == origin[pair[1]]]
    copies = [name for name in origin if origin[name] != name]
    found = {name for pair in right for name in pair if origin[name] in pair}
    rates = [len(right) / len(every) if every else float("nan"), sum(name in found for name in copies) / len(copies)]
    for way in WAYS:
        some = [name for name in copies if way in name]
        rates.append(sum(name in found for name in some) / len(some))
    return [f"{100 * rate:.0f}" for rate in rates]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="photos, instead of drawn products")
    parser.add_argument("--most", type=int, default=400, help="photos at most, evenly spread")
    parser.add_argument("--copies", type=int, default=20, help="copies made in each way")
    parser.add_argument("--size", type=int, default=320, help="pixels of a drawn photo")
    parser.add_argument("--model", default="tf_efficientnet_lite0")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        source = asked.images
        if source is None:
            products = max(2, asked.most // 4)  # half of them are for testing elsewhere
            source, _ = make_products(place / "drawn", products=products, photos=8, size=asked.size, seed=asked.seed)
        folder = place / "photos"
        folder.mkdir()
        origin = fill(folder, source, asked.most, asked.copies, asked.seed)
        made = sum(name != original for name, original in origin.items())
        print(f"{len(origin) - made} photos and {made} copies of them\n")
        methods: list[Callable[[], tuple[str, set[Pair]]]] = [partial(by_model, folder, asked.model)]
        if find_spec("imagehash"):
            methods += [partial(by_imagehash, folder, most) for most in (4, 10)]
        if find_spec("imagededup"):
            methods.append(partial(by_imagededup, folder))
        print(f"| | precision | recall | {' | '.join(WAYS)} | seconds |")
        print(f"|---|{'---:|' * (len(WAYS) + 3)}")
        for method in methods:
            began = time.perf_counter()
            name, pairs = method()
            row = [name, *measure(pairs, origin), f"{time.perf_counter() - began:.0f}"]
            print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
