"""NABirds: North American birds by species, sex and age; the paper uses all of it, without labels."""

import re
from pathlib import Path

from selftaught.data.benchmarks.benchmark import Benchmark, Counts, Listed, has_files, read_images, read_rows
from selftaught.errors import SelftaughtError, printable

KEY = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
SAMPLE = "0000139e-21dc-4d0c-bfe1-4cae3c85c829"
EXAMPLES = (f"{SAMPLE} 0817/{SAMPLE.replace('-', '')}.jpg", f"{SAMPLE} 817")


def _holds(folder: Path) -> bool:
    """Whether a folder holds NABirds: its index files are named like those of CUB-200-2011, but have other keys."""
    if not has_files(folder, "images.txt", "image_class_labels.txt"):
        return False
    try:
        with (folder / "images.txt").open("rb") as file:
            return re.match(KEY.encode(), file.readline(200)) is not None
    except OSError:
        return False


def _images(folder: Path) -> list[Listed]:
    names: dict[int, str] = {}
    if has_files(folder, "classes.txt"):
        rows = read_rows(folder / "classes.txt", r"(\d+)\s+(.+)", "817 Oak Titmouse")
        names = {int(number): f".{name}" for number, name in rows}
    split = folder / "train_test_split.txt"
    parts: dict[str, str] = {}
    if has_files(folder, split.name):
        rows = read_rows(split, rf"({KEY})\s+([01])", f"{SAMPLE} 1")
        parts = {key: "train" if flag == "1" else "test" for key, flag in rows}
    images = []
    for key, path, number in read_images(folder, KEY, EXAMPLES):
        if parts and key not in parts:
            raise SelftaughtError(
                f"{printable(split)} has no line for image {key} of images.txt: unpack the archive again"
            )
        images.append(Listed(f"images/{path}", f"{number:04d}{names.get(number, '')}", parts.get(key, "")))
    return images


NABIRDS = Benchmark(
    name="nabirds",
    title="NABirds",
    origin="nabirds.tar.gz, from the Cornell Lab of Ornithology (dl.allaboutbirds.org/nabirds)",
    inner="nabirds",
    signature="images.txt and image_class_labels.txt",
    holds=_holds,
    images=_images,
    expected={"train": Counts(23929, 555), "test": Counts(24633, 555), "all": Counts(48562, 555)},
    training="all",
)
