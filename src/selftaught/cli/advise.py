"""Describe a collection before training on it, and recommend settings, each with its reason."""

import shlex
import statistics
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from selftaught.console import Reporter, duration, print_table
from selftaught.data import Advance, ImageFolder, Skipped, check_skipped, open_image, open_images
from selftaught.devices import choose_device
from selftaught.duplicates import Duplicates, distances_of_known_copies, find_copies, leave_out_links
from selftaught.embedder import Embedder
from selftaught.errors import ImageError, SelftaughtError, counted, printable
from selftaught.learners import make_settings
from selftaught.networks import Encoder, build_backbone, count_photos_per_thing
from selftaught.retrieval import CLEAR_STEP
from selftaught.run_folder import Choice
from selftaught.training import choose_epochs, choose_neighbors, estimate, measure_pace, resolve

MEASURED = 200
"""The number of photos, evenly spread, whose size is measured."""


@dataclass(frozen=True)
class Advice:
    """Facts about a collection; ``choices``: the settings for training that follow from them."""

    images: int
    skipped: tuple[Skipped, ...]
    duplicates: Duplicates
    photos_per_thing: int | None
    """None if no number of photos stands out."""
    choices: tuple[Choice, ...]
    seconds: float
    """About how long training with these choices takes here."""


def advise(
    images: ImageFolder,
    device: str | torch.device = "auto",
    backbone: str = "auto",
    allow_skipped: bool = False,
    advance: Advance = lambda _: None,
) -> Advice:
    """Look at images with the network that training starts from, as training does. This takes two passes over them.

    Args:
        images: at least as many as training needs.
        allow_skipped: go on if more than a few cannot be read.
        advance: called with how many more images have been embedded, each twice.
    """
    place, built = choose_device(device), build_backbone(backbone)
    embedder = Embedder.untrained(built, place)  # it sees photos as training does, so that both count the same
    raw = embedder.raw.encoding
    features, failures = raw.encode_files(images.paths(), advance)
    skipped = tuple(Skipped(images.files[i], reason) for i, reason in failures)
    check_skipped(images, skipped, allow=allow_skipped)
    images = images.without(skipped)
    things = None
    if not built.pretrained:  # then training does not count either
        advance(len(images))
    else:
        whole, failures = raw.encode_files(images.paths(), advance, "squash")
        things = count_photos_per_thing(features, *([] if failures else [whole]), least_step=CLEAR_STEP)
    distinct = leave_out_links(images)
    rows = {file: row for row, file in enumerate(images.files)}
    vectors = F.normalize(features)[[rows[file] for file in distinct.files]]
    copies = find_copies(distinct, vectors, distances_of_known_copies(embedder, distinct, vectors))
    neighbors = choose_neighbors(things)
    pace = measure_pace(Encoder(built.module, built.preprocessing).to(place), place)
    settings = make_settings("best", neighbors=neighbors.value)
    epochs = choose_epochs(settings, len(images), built, place, pace)
    settings, resolved = resolve(replace(settings, epochs=epochs.value), len(images), built, place)
    network, batch = (next(c for c in resolved if c.name == name) for name in ("backbone", "batch_size"))
    choices = (neighbors, epochs, batch, network)
    seconds = estimate(settings, len(images), 0, built, place, pace).seconds
    return Advice(len(images), skipped, copies, things, choices, seconds)


def advise_on(source: str, backbone: str, device: str, allow_skipped: bool) -> None:
    images = open_images(source, "train", allow_skipped=allow_skipped)
    if len(images) < 2:
        raise SelftaughtError(f"there is only one image in {printable(source)}, from which nothing can be learned")
    with Reporter().work("looking at each image twice", 2 * len(images)) as tell:
        advice = advise(images, device, backbone, allow_skipped, advance=tell)
    print("\n".join(describe_collection(advice)))
    rows = [(choice.name.replace("_", " "), str(choice.value), choice.reason) for choice in advice.choices]
    print_table(("setting", "value", "why"), rows, left=3)
    print(f"Training with these would take about {duration(advice.seconds)} here.")
    print(command(source, backbone, allow_skipped))


def describe_collection(advice: Advice) -> list[str]:
    """The facts about a collection, one per line."""
    kinds = advice.duplicates.kinds
    lines = [f"{advice.images} photos, {measure_sizes(advice.duplicates.images)}"]
    if advice.skipped:
        first = advice.skipped[0]
        files = counted(len(advice.skipped), "file")
        lines.append(f"{files} that cannot be read, such as {printable(first.path)}: {first.reason}")
    if kinds:
        near = kinds.count("near") + kinds.count("fingerprint")
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
