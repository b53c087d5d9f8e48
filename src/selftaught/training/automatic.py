"""Settings left open are chosen here, each with its reason."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from selftaught.data import available_cores
from selftaught.errors import SelftaughtError, UsageError
from selftaught.learners import METHODS
from selftaught.networks import Backbone
from selftaught.recipes import Settings

BATCH_SIZE = 120
STEPS_PER_EPOCH = 8
FEWEST_QUERIES = 12
CLUSTERS = 100
"""About as many as the data sets CUB and Cars have classes; ours, as nothing is known of a folder without labels."""


@dataclass(frozen=True)
class Choice:
    """An automatic value, and why it is what it is."""

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.name.replace('_', ' ')} {self.value}: {self.reason}"


def resolve(settings: Settings, images: int, backbone: Backbone, device: torch.device) -> tuple[Settings, list[Choice]]:
    """Settings without anything left open, and the choices that were made."""
    choices = [
        Choice("backbone", backbone.name, backbone.reason),
        Choice("crop", backbone.preprocessing.size, f"the input size of {backbone.name}"),
        _batch_size(settings, images),
        _batch_norm(settings, backbone),
        *_clusters(settings, images),
        _precision(settings, device),
        automatic_workers(settings),
    ]
    changes: dict[str, Any] = {choice.name: choice.value for choice in choices if choice.name != "crop"}
    return replace(settings, **changes), choices


def _batch_size(settings: Settings, images: int) -> Choice:
    k = settings.neighbors
    if images < 2 * k:
        count = "one image" if images == 1 else f"{images} images"
        raise SelftaughtError(
            f"{count} cannot be learned from: with {k} neighbors per query at least {2 * k} images are needed"
        )
    if settings.batch_size is not None:
        if settings.batch_size > images:
            raise UsageError(
                f"batch size {settings.batch_size} is more than the {images} images there are: "
                f"give at most {images // k * k}, or leave it out"
            )
        return Choice("batch_size", settings.batch_size, "as asked for")
    standard = BATCH_SIZE // k * k
    size = min(standard, max(images // STEPS_PER_EPOCH, FEWEST_QUERIES * k), images) // k * k
    if size == standard:
        return Choice("batch_size", size, f"{size // k} queries with {k} images each, as in the paper")
    return Choice("batch_size", size, f"less than the paper's {standard}, because there are only {images} images")


def _batch_norm(settings: Settings, backbone: Backbone) -> Choice:
    if settings.freeze_batch_norm is not None:
        return Choice("freeze_batch_norm", settings.freeze_batch_norm, "as asked for")
    if backbone.pretrained:
        return Choice("freeze_batch_norm", True, "the weights are pretrained, and training it loses points")
    return Choice("freeze_batch_norm", False, "the weights are random, so its statistics must be learned")


def _clusters(settings: Settings, images: int) -> list[Choice]:
    if not METHODS[settings.method].clusters:
        return []
    most = images // settings.neighbors
    if settings.clusters is not None:
        if settings.clusters > most:
            raise UsageError(f"{settings.clusters} clusters are too many for {images} images: give at most {most}")
        return [Choice("clusters", settings.clusters, "as asked for")]
    return [
        Choice("clusters", min(CLUSTERS, max(2, most)), f"at most {CLUSTERS}, and {settings.neighbors} images each")
    ]


def _precision(settings: Settings, device: torch.device) -> Choice:
    if settings.precision != "auto":
        return Choice("precision", settings.precision, "as asked for")
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return Choice("precision", "bf16-mixed", "the GPU computes in bfloat16; similarity and losses stay in float32")
    return Choice("precision", "32-true", f"full precision on this {device.type} device")


def automatic_workers(settings: Settings) -> Choice:
    if settings.workers is not None:
        return Choice("workers", settings.workers, "as asked for")
    cores = available_cores()
    return Choice("workers", min(cores, 16), f"processes that read images, on {cores} available cores")
