"""Describe a collection before training on it, and recommend settings."""

import shlex
import statistics
from contextlib import suppress

from rich.console import Console
from rich.table import Table

from selftaught.advice import Advice, advise
from selftaught.console import Reporter, duration
from selftaught.data import ImageFolder, open_image, open_images
from selftaught.errors import ImageError, SelftaughtError, counted, printable

MEASURED = 200
"""The number of photos, evenly spread, whose size is measured."""


def advise_on(source: str, backbone: str, device: str, allow_skipped: bool) -> None:
    images = open_images(source, "all", allow_skipped=allow_skipped)
    if len(images) < 2:
        raise SelftaughtError(f"there is only one image in {printable(source)}, from which nothing can be learned")
    with Reporter().work("looking at images", 2 * len(images)) as tell:
        advice = advise(images, device, backbone, allow_skipped, advance=tell)
    print("\n".join(describe(advice)))
    table = Table("setting", "value", "why", box=None, pad_edge=False, header_style="")
    for choice in advice.choices:
        table.add_row(choice.name.replace("_", " "), str(choice.value), choice.reason)
    Console(soft_wrap=True, highlight=False, markup=False).print(table)
    print(f"Training with these would take about {duration(advice.seconds)} here.")
    print(command(source, backbone, allow_skipped))


def describe(advice: Advice) -> list[str]:
    """The facts about a collection, one per line."""
    kinds = [copy.kind for group in advice.duplicates.groups for copy in group.copies[1:]]
    lines = [f"{advice.images} photos, {measure_sizes(advice.duplicates.images)}"]
    if advice.skipped:
        first = advice.skipped[0]
        files = counted(len(advice.skipped), "file")
        lines.append(f"{files} that cannot be read, such as {printable(first.path)}: {first.reason}")
    if kinds:
        near = kinds.count("near")
        equal = counted(len(kinds) - near, "exact copy", "exact copies")
        lines.append(f"{equal} and {counted(near, 'near-duplicate')} (see selftaught dedup)")
    else:
        lines.append("no duplicates")
    things = advice.photos_per_thing
    lines.append(
        "how many photos there are of one thing cannot be told"
        if things is None
        else f"about {things} photos of one thing"
    )
    return lines


def measure_sizes(images: ImageFolder) -> str:
    """The usual size of the photos, in words."""
    sides = []
    for index in range(0, len(images), max(1, len(images) // MEASURED)):
        with suppress(ImageError):  # gone since it was embedded
            sides.append(open_image(images.path(index)).size)
    width, height = (round(statistics.median(side)) for side in zip(*sides, strict=True))
    return f"most about {width}×{height} pixels"


def command(source: str, backbone: str, allow_skipped: bool) -> str:
    """The next command, in words; it chooses the same by itself."""
    words = "" if backbone == "auto" else f" --backbone {shlex.quote(backbone)}"
    words += " --allow-skipped" * allow_skipped
    return f"Next: selftaught train {shlex.quote(printable(source))} --out RUN{words}"
