"""A split of a benchmark as images with labels, checked against the disk."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from selftaught.data.benchmarks.benchmark import Benchmark, Counts, Listed
from selftaught.data.benchmarks.registry import benchmark_of, locate
from selftaught.data.folder import ImageFolder
from selftaught.errors import SelftaughtError, UsageError, printable, unknown

SHARES = (10, 25)
"""Percentages of the training classes that name a part, besides halves."""
SPLITS = ("train", "test", "all", "train-a", "train-b", *(f"train-{part}{share}" for share in SHARES for part in "ab"))


@dataclass(frozen=True)
class SplitCheck:
    """The counts of a split as found and as expected, and the listed files that are missing."""

    split: str
    found: Counts
    expected: Counts | None
    missing: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the counts differ from the official ones."""
        expected, found = self.expected or self.found, self.found
        return expected.images != found.images or expected.classes not in (None, found.classes)


def read_benchmark(name: str, root: str | os.PathLike[str], split: str | None = None) -> ImageFolder:
    """The images of a split with their labels, from the benchmark's own index files.

    ``root``: the folder the archive unpacks to, or the one around it. ``split``: train, test, all, or train-a and
    train-b, the first and second half of the training classes; train-a10 and train-b10, the first tenth of them and the
    rest, and so on; None for the split that the paper trains on.
    """
    benchmark = benchmark_of(name)
    split = split or benchmark.training
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    place = locate(benchmark, Path(root))
    listed = list_benchmark(benchmark, place)
    chosen = choose(listed, split)
    if not chosen:
        there = [option for option in SPLITS if choose(listed, option)]
        raise UsageError(
            f"{benchmark.title} in {printable(place)} has no images in split {split!r}: "
            + (f"choose from {', '.join(there)}" if there else f"get {benchmark.origin}")
        )
    gone = missing_files(place, (image.file for image in chosen))
    if gone:
        raise SelftaughtError(
            f"{len(gone)} of {len(chosen)} images of {benchmark.title} missing in {printable(place)}: "
            f"the first is {printable(gone[0])}; get {benchmark.origin}"
        )
    return ImageFolder(place, tuple(image.file for image in chosen), tuple(image.label for image in chosen))


def check_benchmark(name: str, root: str | os.PathLike[str]) -> tuple[Path, list[SplitCheck]]:
    """The benchmark's folder, and a check of its splits train, test and all."""
    benchmark = benchmark_of(name)
    place = locate(benchmark, Path(root))
    listed = list_benchmark(benchmark, place)
    gone = set(missing_files(place, (image.file for image in listed)))
    checks = []
    for split in ("train", "test", "all"):
        images = choose(listed, split)
        if images or split in benchmark.expected:
            there = [image for image in images if image.file not in gone]
            found = Counts(len(there), len({image.label for image in there}))
            missing = tuple(image.file for image in images if image.file in gone)
            checks.append(SplitCheck(split, found, benchmark.expected.get(split), missing))
    return place, checks


def list_benchmark(benchmark: Benchmark, place: Path) -> list[Listed]:
    listed = benchmark.images(place)
    file, times = Counter(image.file for image in listed).most_common(1)[0] if listed else ("", 0)
    if times > 1:
        where = f"the index of {benchmark.title} in {printable(place)}"
        raise SelftaughtError(f"{where} has {printable(file)} twice: get {benchmark.origin}")
    return listed


def choose(listed: Sequence[Listed], split: str) -> list[Listed]:
    """The images of a split, in the order of the index."""
    if split == "all":
        return list(listed)
    part, _, side = split.partition("-")
    images = [image for image in listed if image.part == part]
    if not side:
        return images
    classes = sorted({image.label for image in images})
    first = first_classes(len(classes), int(side[1:] or 50))
    kept = set(classes[:first] if side[0] == "a" else classes[first:])
    return [image for image in images if image.label in kept]


def first_classes(classes: int, percent: int) -> int:
    """The number of classes in the first part: ``percent`` of them, rounded down, but at least two below a half."""
    return max(classes * percent // 100, min(2, classes // 2))


def missing_files(place: Path, files: Iterable[str]) -> list[str]:
    """The files that are not on the disk; each folder is listed once, and no file is opened."""
    there: dict[str, set[str]] = {}
    missing = []
    for file in files:
        folder, _, name = file.rpartition("/")
        if folder not in there:
            try:
                there[folder] = set(os.listdir(place / folder))  # noqa: PTH208, names only
            except OSError:
                there[folder] = set()
        if name not in there[folder]:
            missing.append(file)
    return missing
