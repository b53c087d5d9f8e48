"""What a run is made from: the images that can be read, the backbone, the device."""

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from selftaught.data import ImageFolder, Skipped, check_skipped, joined, skipped_table, unreadable
from selftaught.data.sources import open_images
from selftaught.errors import SelftaughtError, shown
from selftaught.files import write_atomically
from selftaught.learners import METHODS
from selftaught.networks import Backbone, Preprocessing, build_backbone
from selftaught.recipes import Settings
from selftaught.training.checkpoint import Progress
from selftaught.training.interrupts import Interrupts
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
    if not METHODS[method].labeled:
        return None
    labels = images.labels() if images.given is None or method != "slade" else images.given
    sizes = Counter(label for label in labels if label)
    alone = sorted(label for label, size in sizes.items() if size == 1)
    if alone:
        raise SelftaughtError(
            f"{len(alone)} of {len(sizes)} classes in {shown(images.root)} have one image only, such as "
            f"{shown(alone[0])}: learning from labels takes two or more of each; add some, or remove the class"
        )
    numbers = {label: number for number, label in enumerate(sorted(sizes))}
    return torch.tensor([numbers.get(label, -1) for label in labels])


def readable_images(
    run: Path,
    saved: dict[str, Any],
    progress: Progress | None,
    workers: int,
    reporter: Reporter,
    interrupts: Interrupts,
) -> tuple[ImageFolder, ImageFolder | None]:
    """The images to train on, and those to measure on: all that can be read, or those of the checkpoint."""
    images = open_training_images(saved)
    labeled = None if saved["eval"] is None else open_images(saved["eval"], "test")
    if labeled is not None:
        labeled.labels()
    if progress is not None:
        gone = sorted(set(progress.files) - set(images.files))
        if gone:
            raise SelftaughtError(
                f"{len(gone)} of the run's {len(progress.files)} images are gone from {shown(images.root)}, "
                f"such as {shown(gone[0])}: bring them back to resume"
            )
        return images.only(progress.files), labeled and labeled.only(progress.labeled)
    skipped = _check(images, "checking images", workers, reporter, interrupts)
    unscored = [] if labeled is None else _check(labeled, "checking --eval images", workers, reporter, interrupts)
    if skipped or unscored:
        write_atomically(run / SKIPPED, skipped_table([*skipped, *unscored]))
        reporter.say(f"{len(skipped) + len(unscored)} images cannot be read and are left out: {shown(run / SKIPPED)}")
    check_skipped(images, skipped, allow=saved["allow_skipped"])
    if labeled is not None:
        check_skipped(labeled, unscored, allow=saved["allow_skipped"])
        labeled = labeled.without(unscored)
    return images.without(skipped), labeled


def _check(images: ImageFolder, label: str, workers: int, reporter: Reporter, interrupts: Interrupts) -> list[Skipped]:
    with reporter.work(label, len(images)) as tell:

        def advance(more: int) -> None:
            interrupts.check()
            tell(more, "")

        return unreadable(images, workers, advance)


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


def make_fabric(device: torch.device, precision: Any) -> Fabric:
    for name in ("lightning.fabric", "lightning.pytorch"):  # what they would say is said by the choices
        logging.getLogger(name).setLevel(logging.WARNING)
    accelerator = device.type if device.type in ("cuda", "mps") else "cpu"
    return Fabric(accelerator=accelerator, devices=1 if device.index is None else [device.index], precision=precision)
