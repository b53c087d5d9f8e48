"""CompCars, the photos from the web: makes and models of cars; the paper uses all of it, without labels."""

import re
from pathlib import Path

from selftaught.data.benchmarks.benchmark import Benchmark, Counts, Listed
from selftaught.data.folder import find_images
from selftaught.errors import SelftaughtError, printable

FORM = re.compile(r"(\d+)/(\d+)/.+")


def _holds(folder: Path) -> bool:
    models = folder.glob("image/[0-9]*/[0-9]*/")
    return any(model.name.isdecimal() and model.parent.name.isdecimal() for model in models)


def _images(folder: Path) -> list[Listed]:
    """The images in ``image/MAKE/MODEL/YEAR/``: there is no index of all images."""
    images = []
    for file in find_images(folder / "image").files:
        match = FORM.fullmatch(file)
        if match is None:
            raise SelftaughtError(
                f"{printable(file)} in {printable(folder / 'image')} lies outside the numbered folders "
                "MAKE/MODEL/YEAR of CompCars: take it out"
            )
        make, model = map(int, match.groups())
        images.append(Listed(f"image/{file}", f"{make:03d}/{model:04d}", ""))
    return images


COMPCARS = Benchmark(
    name="compcars",
    title="CompCars",
    origin="data.zip with its parts data.z01 to data.z22, from CUHK's Multimedia Laboratory (mmlab.ie.cuhk.edu.hk)",
    inner="data",
    signature="a folder image with the numbered folders MAKE/MODEL/YEAR",
    holds=_holds,
    images=_images,
    expected={"all": Counts(136726, None)},
    training="all",
)
