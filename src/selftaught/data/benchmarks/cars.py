"""Cars-196: 196 models of cars; the first 98 are trained on, the others tested."""

from pathlib import Path

import numpy as np

from selftaught.data.benchmarks.benchmark import Benchmark, Counts, Listed, has_files
from selftaught.errors import SelftaughtError, one_line, printable

TRAIN_CLASSES = 98
INDEX = "cars_annos.mat"


def _images(folder: Path) -> list[Listed]:
    from scipy.io import loadmat

    file = folder / INDEX
    try:
        content = loadmat(file, squeeze_me=True, variable_names=["annotations", "class_names"])
    except Exception as error:  # scipy can raise anything on damaged files
        raise SelftaughtError(f"{printable(file)} cannot be read ({one_line(error)}): get {CARS.origin}") from None
    try:
        annotations = np.atleast_1d(content["annotations"])
        names = [str(name) for name in np.atleast_1d(content["class_names"])]
        rows = [(str(row["relative_im_path"]), int(row["class"])) for row in annotations]
        if not all(1 <= number <= len(names) for _, number in rows):
            raise ValueError(f"a class is not within 1 to {len(names)}")
        return [
            Listed(path, f"{number:03d}.{names[number - 1]}", "train" if number <= TRAIN_CLASSES else "test")
            for path, number in rows
        ]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise SelftaughtError(
            f"{printable(file)} does not list cars by relative_im_path, class and class_names ({one_line(error)}): "
            f"get {CARS.origin}"
        ) from None


CARS = Benchmark(
    name="cars",
    title="Cars-196",
    origin="car_ims.tgz and cars_annos.mat, from Stanford's Cars page or a copy of it",
    inner="",
    signature=INDEX,
    holds=lambda folder: has_files(folder, INDEX),
    images=_images,
    expected={"train": Counts(8054, 98), "test": Counts(8131, 98), "all": Counts(16185, 196)},
)
