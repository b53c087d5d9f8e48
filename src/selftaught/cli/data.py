"""The benchmarks: a list of them, and a check whether one is complete on this disk."""

from pathlib import Path
from typing import Annotated

import typer

from selftaught.cli.options import AllowSkipped, Labels, Level

app = typer.Typer(help="The data sets of the paper: what to get, what is there.", no_args_is_help=True)


@app.command("list")
def list_benchmarks() -> None:
    """Show the data sets by name, and what to get for each."""
    from selftaught.console import print_table
    from selftaught.data import BENCHMARKS

    rows = [(benchmark.name, benchmark.title, benchmark.origin) for benchmark in BENCHMARKS.values()]
    print_table(("name", "data set", "what to get"), rows, left=3)
    print("Give one as NAME:ROOT or NAME:ROOT:SPLIT, with split train, test, all, train-a or train-b, train-a10 …")


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="A name from selftaught data list, or your own folder.", metavar="NAME")],
    root: Annotated[Path | None, typer.Argument(help="The data set's folder, or its parent.", metavar="ROOT")] = None,
    level: Level = None,
    labels: Labels = None,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Show what is there of a data set, and what is missing. Exits with 1 if it is not complete.

    Without ROOT, show how many images and classes a folder or tar files hold.

    Example: selftaught data check cub /data/CUB_200_2011
    """
    from selftaught.console import print_table
    from selftaught.data import BENCHMARKS, benchmark_of, check_benchmark
    from selftaught.errors import SelftaughtError, UsageError, printable

    if root is None and name not in BENCHMARKS:
        _check_own(name, level, labels, allow_skipped)
        return
    benchmark = benchmark_of(name)
    if root is None:
        raise UsageError(f"name the folder of {benchmark.title} too: selftaught data check {name} FOLDER")
    if level is not None or labels is not None:
        raise UsageError(f"{benchmark.title} has labels of its own: --level and --labels are for other images")
    place, checks = check_benchmark(name, root)
    print(f"{benchmark.title} in {printable(place)}")
    rows = []
    for row in checks:
        images, classes = (row.expected.images, row.expected.classes) if row.expected else (None, None)
        counts = (row.found.images, images, row.found.classes, classes, len(row.missing))
        rows.append([row.split, *("" if count is None else f"{count:,}" for count in counts)])
    print_table(("split", "images", "expected", "classes", "expected", "missing files"), rows)
    wrong: list[str] = []
    missing = checks[-1].missing  # the split "all"
    if missing:
        wrong.append(f"{len(missing)} listed files are missing, the first is {printable(missing[0])}")
    differing = [row.split for row in checks if row.differs]
    if differing:
        wrong.append(f"the counts differ from the official ones in {', '.join(differing)}")
    if wrong:
        raise SelftaughtError(f"{benchmark.title} is not complete: {'; '.join(wrong)}; get {benchmark.origin}")
    print("complete" if benchmark.expected else "complete, as far as can be told: there are no official counts")


def _check_own(source: str, level: str | None, labels: str | None, allow_skipped: bool) -> None:
    """Print the number of images and their classes."""
    from collections import Counter

    from selftaught.cli.model_use import leave_out_folders
    from selftaught.data import open_images
    from selftaught.errors import counted, printable

    images = leave_out_folders(open_images(source, "all", level=level, labels=labels, allow_skipped=allow_skipped))
    print(f"{counted(len(images), 'image')} in {printable(images.root)}")
    images.check_classes()
    print(images.describe_labels())
    alone = sorted(name for name, size in Counter(images.labels()).items() if size == 1)
    if alone:
        classes = counted(len(alone), "class has", "classes have")
        print(f"{classes} one image only, which is left out of scores: {printable(alone[0])}")
