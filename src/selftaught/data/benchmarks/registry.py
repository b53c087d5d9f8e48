"""The benchmarks by name, and the search for their folders."""

import os
from collections.abc import Iterator
from pathlib import Path

from selftaught.data.benchmarks.benchmark import Benchmark
from selftaught.data.benchmarks.cars import CARS
from selftaught.data.benchmarks.compcars import COMPCARS
from selftaught.data.benchmarks.cub import CUB
from selftaught.data.benchmarks.nabirds import NABIRDS
from selftaught.data.benchmarks.sop import SOP
from selftaught.data.benchmarks.split_folder import SPLIT_FOLDER
from selftaught.errors import SelftaughtError, UsageError, printable, unknown

BENCHMARKS = {benchmark.name: benchmark for benchmark in (CUB, CARS, SOP, NABIRDS, COMPCARS, SPLIT_FOLDER)}


def benchmark_of(name: str) -> Benchmark:
    """The benchmark of this name.

    >>> benchmark_of("cub").expected["train"]
    Counts(images=5864, classes=100)
    """
    if name not in BENCHMARKS:
        raise unknown("data set", name, BENCHMARKS)
    return BENCHMARKS[name]


def find_benchmark(name: str, data_root: str | os.PathLike[str]) -> Path | None:
    """The folder of a benchmark: the given folder, a folder in it, or the archive's folder in one of these.

    Folders are recognized by their index files; nothing is read in full.
    """
    benchmark = benchmark_of(name)
    root = Path(data_root)
    inner = (child / benchmark.inner for child in _children(root))
    return _place(benchmark, root) or next(filter(benchmark.holds, inner), None)


def locate(benchmark: Benchmark, root: Path) -> Path:
    """The benchmark's folder, given that folder or the one around it.

    Raises:
        SelftaughtError: says what ``root`` holds instead, or what is missing and where to get it.
    """
    if not root.exists():
        raise UsageError(f"there is no folder {printable(root)} to hold {benchmark.title}")
    if not root.is_dir():
        raise UsageError(f"{printable(root)} is a file; give the folder of {benchmark.title}, unpacked")
    place = _place(benchmark, root)
    if place is not None:
        return place
    for other in BENCHMARKS.values():
        if other.holds(root) or other.holds(root / other.inner):
            raise SelftaughtError(
                f"{printable(root)} holds {other.title} ({other.name}), not {benchmark.title}: "
                f"name it {other.name}, or give the folder of {benchmark.title}"
            )
    raise SelftaughtError(
        f"{printable(root)} does not hold {benchmark.title}: neither it nor a folder directly in it has "
        f"{benchmark.signature}; get {benchmark.origin}"
    )


def _place(benchmark: Benchmark, root: Path) -> Path | None:
    return next(filter(benchmark.holds, (root, root / benchmark.inner, *_children(root))), None)


def _children(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(child for child in folder.iterdir() if not child.name.startswith("."))
    except OSError:
        return
