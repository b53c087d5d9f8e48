"""What a run is made from: the images that can be read, the backbone, the device."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selftaught.data import (
    CachedReader,
    DecodedCache,
    FileReader,
    ImageFolder,
    ImageReader,
    Skipped,
    Views,
    check_skipped,
    joined,
    open_images,
    skipped_table,
)
from selftaught.errors import SelftaughtError, printable
from selftaught.files import write_atomically
from selftaught.learners import find_method
from selftaught.networks import Backbone, Preprocessing, build_backbone
from selftaught.parallel import rank
from selftaught.recipes import Settings
from selftaught.training.checkpoint import Progress
from selftaught.training.progress import Reporter

SKIPPED = "skipped.csv"


def open_training_images(saved: dict[str, Any]) -> ImageFolder:
    """The images that a run is to learn from, as found on the disk."""
    if saved["images"] is not None:
        return open_images(saved["images"], "train")
    labeled = open_images(saved["labeled"], "train")
    labeled.labels()
    return joined(labeled, open_images(saved["unlabeled"], "all"))


def class_numbers(images: ImageFolder, method: str) -> Tensor | None:
    """Each image's class as a number, -1 for those without label; None for a method without labels."""
    if not find_method(method).labeled:
        return None
    labels = images.labels() if images.given is None or method != "slade" else images.given
    sizes = Counter(label for label in labels if label)
    alone = sorted(label for label, size in sizes.items() if size == 1)
    if alone:
        raise SelftaughtError(
            f"{len(alone)} of {len(sizes)} classes in {printable(images.root)} have one image only, such as "
            f"{printable(alone[0])}: learning from labels takes two or more of each; add some, or remove the class"
        )
    numbers = {label: number for number, label in enumerate(sorted(sizes))}
    return torch.tensor([numbers.get(label, -1) for label in labels])


def listed_images(saved: dict[str, Any], progress: Progress | None) -> tuple[ImageFolder, ImageFolder | None]:
    """The images to train on, and those to measure on: all that there are, or those of the checkpoint."""
    images = open_training_images(saved)
    labeled = None if saved["eval"] is None else open_images(saved["eval"], "test")
    if labeled is not None:
        labeled.check_classes()
    if progress is not None:
        gone = sorted(set(progress.files) - set(images.files))
        if gone:
            raise SelftaughtError(
                f"{len(gone)} of the run's {len(progress.files)} images are gone from {printable(images.root)}, "
                f"such as {printable(gone[0])}: bring them back to resume"
            )
        return images.only(progress.files), labeled and labeled.only(progress.labeled)
    return images, labeled


class LeftOut:
    """Images that turned out to be unreadable, and are left out: a few of them are no reason not to train."""

    def __init__(self, run: Path, allow: bool, reporter: Reporter) -> None:
        self.run, self.allow, self.reporter = run, allow, reporter
        self.skipped: list[Skipped] = []

    def leave_out(self, images: ImageFolder, skipped: list[Skipped]) -> ImageFolder:
        """The images without those, which are listed in the run's folder; an error if they are too many."""
        self.skipped += skipped
        if rank() == 0:
            write_atomically(self.run / SKIPPED, skipped_table(self.skipped))
        self.reporter.say(f"{len(skipped)} images cannot be read and are left out: {printable(self.run / SKIPPED)}")
        check_skipped(images, skipped, allow=self.allow)
        return images.without(skipped)


def choose_backbone(
    saved: dict[str, Any], requested: Settings, own: nn.Module | None, preprocessing: Preprocessing | None, begun: bool
) -> Backbone:
    if begun:  # the weights come from the checkpoint
        module = own if own is not None else build_backbone(saved["backbone"], "none").module
        inputs = Preprocessing(**saved["preprocessing"])
        return Backbone(saved["backbone"], module, inputs, saved["pretrained"], "weights from the checkpoint")
    known = saved.get("preprocessing")  # as it was given, if the run was stopped before its first checkpoint
    given = preprocessing or (Preprocessing(**known) if known else None)
    if own is not None:
        name = f"{type(own).__module__}.{type(own).__qualname__}"
        return Backbone(name, own, given or Preprocessing(), True, "a module of your own")
    backbone = build_backbone(requested.backbone, requested.weights)
    if given is None or saved.get("backbone", backbone.name) != backbone.name:
        return backbone
    return replace(backbone, preprocessing=given)


def make_reader(chosen: Settings, inputs: Preprocessing, root: Path, device: torch.device) -> ImageReader:
    """What reads the images below ``root``."""
    views = Views(inputs.size, inputs.use_resize, inputs.squash, chosen.crop_scale, inputs.use_size)
    workers = chosen.workers or 0
    if chosen.input == "files":
        return FileReader(views, workers, device)
    assert chosen.cache_side is not None
    return CachedReader(views, chosen.cache_side, workers, device, DecodedCache(str(root.absolute())))
