"""Facts about a collection before training on it, and the settings that follow from them, each with its reason."""

from dataclasses import dataclass, replace

import torch

from selftaught.data import Advance, ImageFolder, Skipped, check_skipped
from selftaught.devices import choose_device
from selftaught.duplicates import Duplicates, distances_of_known_copies, find_copies, leave_out_links
from selftaught.embedder import Embedder
from selftaught.learners import make_settings
from selftaught.networks import Encoder, build_backbone, count_photos_per_thing
from selftaught.retrieval import CLEAR_STEP
from selftaught.run_folder import Choice
from selftaught.training import choose_epochs, choose_neighbors, estimate, measure_pace, resolve


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
    place = choose_device(device)
    embedder = Embedder.plain(backbone, place)
    images = leave_out_links(images)
    vectors, failures = embedder.encoding.encode_files(images.paths(), advance)
    skipped = tuple(Skipped(images.files[i], reason) for i, reason in failures)
    check_skipped(images, skipped, allow=allow_skipped)
    images = images.without(skipped)
    copies = find_copies(images, vectors, distances_of_known_copies(embedder, images, vectors))
    extra = {copy.index for group in copies.groups for copy in group.copies[1:]}
    different = [row for row in range(len(images)) if row not in extra]
    whole, failures = embedder.encoding.encode_files(images.paths(), advance, "squash")
    views = [vectors] if failures else [vectors, whole]
    things = count_photos_per_thing(*(view[different] for view in views), least_step=CLEAR_STEP)
    neighbors = choose_neighbors(things)
    built = build_backbone(backbone)
    pace = measure_pace(Encoder(built.module, built.preprocessing).to(place), place)
    settings = make_settings("best", neighbors=neighbors.value)
    epochs = choose_epochs(settings, len(images), built, place, pace)
    settings, resolved = resolve(replace(settings, epochs=epochs.value), len(images), built, place)
    network, batch = (next(c for c in resolved if c.name == name) for name in ("backbone", "batch_size"))
    choices = (neighbors, epochs, batch, network)
    seconds = estimate(settings, len(images), 0, built, place, pace).seconds
    return Advice(len(images), skipped, copies, things, choices, seconds)
