"""Images of your own in two parts: ``train/CLASS/`` and ``test/CLASS/``."""

import os
from pathlib import Path

from selftaught.data.benchmarks.benchmark import Benchmark, Listed
from selftaught.data.folder import find_images

PARTS = ("train", "test")


def _images(folder: Path) -> list[Listed]:
    images: list[Listed] = []
    for part in PARTS:
        found = find_images(folder / part)
        rows = zip(found.files, found.labels(), strict=True)
        images += [Listed(f"{part}/{file}", label, part) for file, label in rows]
    return images


SPLIT_FOLDER = Benchmark(
    name="folder",
    title="a folder in two parts",
    origin="images of your own, as train/CLASS/… and test/CLASS/…",
    inner="",
    signature="the folders train and test",
    holds=lambda folder: all(os.path.isdir(folder / part) for part in PARTS),  # noqa: PTH112, false without permission
    images=_images,
    expected={},
)
