"""Stanford Online Products: photos of things for sale, about five of each."""

from pathlib import Path

from selftaught.data.benchmarks.benchmark import Benchmark, Counts, Listed, has_files, read_rows

PARTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}
HEADER = "image_id class_id super_class_id path"
EXAMPLE = "1 1 1 bicycle_final/111085122871_0.JPG"


def _images(folder: Path) -> list[Listed]:
    images: list[Listed] = []
    kinds: dict[int, str] = {}
    for part, index in PARTS.items():
        rows = read_rows(folder / index, r"\d+\s+(\d+)\s+\d+\s+([^/]+/.+)", EXAMPLE, HEADER)
        for product, path in rows:
            kind = kinds.setdefault(int(product), path.split("/", 1)[0].removesuffix("_final"))
            images.append(Listed(path, f"{int(product):05d}.{kind}", part))
    return images


SOP = Benchmark(
    name="sop",
    title="Stanford Online Products",
    origin="Stanford_Online_Products.zip, from Stanford's Computational Vision and Geometry Lab",
    inner="Stanford_Online_Products",
    signature=" and ".join(PARTS.values()),
    holds=lambda folder: has_files(folder, *PARTS.values()),
    images=_images,
    expected={"train": Counts(59551, 11318), "test": Counts(60502, 11316), "all": Counts(120053, 22634)},
)
