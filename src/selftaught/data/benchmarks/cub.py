"""CUB-200-2011: 200 species of birds; the first 100 are trained on, the others tested."""

from pathlib import Path

from selftaught.data.benchmarks.benchmark import Benchmark, Counts, Listed, has_files, read_images
from selftaught.data.benchmarks.nabirds import NABIRDS

TRAIN_CLASSES = 100
EXAMPLES = ("1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg", "1 1")


def _images(folder: Path) -> list[Listed]:
    images = []
    for _, path, number in read_images(folder, r"\d+", EXAMPLES):
        species = path.split("/", 1)[0].split(".", 1)[-1]
        part = "train" if number <= TRAIN_CLASSES else "test"
        images.append(Listed(f"images/{path}", f"{number:03d}.{species}", part))
    return images


CUB = Benchmark(
    name="cub",
    title="CUB-200-2011",
    origin="CUB_200_2011.tgz, from CaltechDATA (data.caltech.edu)",
    inner="CUB_200_2011",
    signature="images.txt and image_class_labels.txt",
    holds=lambda folder: has_files(folder, "images.txt", "image_class_labels.txt") and not NABIRDS.holds(folder),
    images=_images,
    expected={"train": Counts(5864, 100), "test": Counts(5924, 100), "all": Counts(11788, 200)},
)
