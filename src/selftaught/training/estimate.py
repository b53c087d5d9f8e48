"""How much time, memory and disk a run will take, printed before it starts."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from selftaught.console import duration
from selftaught.data import cache_root
from selftaught.devices import free_memory
from selftaught.learners import STMLSettings
from selftaught.networks import Backbone, Encoder
from selftaught.parallel import world
from selftaught.recipes import Settings
from selftaught.training.automatic import Pace
from selftaught.training.floor import most_measured
from selftaught.training.frozen_backbone import VIEWS
from selftaught.training.gradient_parts import bytes_per_view, own_rows, part_size

ASPECT = 4 / 3
"""Long side of a photo divided by its short side, as in most cameras."""
COPIES = 5
"""Numbers kept per parameter: its value, its gradient, the optimizer's two averages, the teacher's value."""
SAVED, SNAPSHOT = 3 * (COPIES - 1) + 3, 2
"""Numbers per parameter in a run folder at most: two checkpoints, a new one beside them, and three models, the served,
the trained and the untrained one. And those of a snapshot: student and teacher."""

PROCESS, IN_USE = int(1.1 * 2**30), 1.55
"""Bytes that a process on a CPU takes beside the network, and bytes in use per byte that the network keeps for its
gradient: EfficientNet-Lite0 took 2.5 GiB with 12 views at once and 7.9 GiB with 60."""


@dataclass(frozen=True)
class Estimate:
    """What a run takes: seconds, and bytes of memory, of disk for its folder, and for decoded images."""

    seconds: float
    memory: int
    saved: int
    decoded: int


def estimate(
    settings: Settings, images: int, measured: int, backbone: Backbone, device: torch.device, pace: Pace, done: int = 0
) -> Estimate:
    """What it takes to train on ``images`` images and to score ``measured`` others; ``done`` epochs are over."""
    assert settings.epochs is not None
    inputs, epochs = backbone.preprocessing, settings.epochs - done
    center, whole = (pace.look * (side / inputs.size) ** 2 for side in (inputs.use_size, inputs.squash))
    looking = measured * center
    parameters = sum(parameter.numel() for parameter in backbone.module.parameters())
    encoder = Encoder(backbone.module, inputs, bool(settings.freeze_batch_norm)).to(device).eval()
    copies = SAVED + (SNAPSHOT * (2 + epochs // settings.snapshots) if settings.snapshots else 0)
    saved = 4 * copies * (parameters + encoder.features * (settings.dim + encoder.features))
    if settings.train == "heads":  # every view is embedded once, and learning takes little
        seconds, memory = images * (1 + VIEWS) * pace.look + looking, 4 * parameters
        saved += 4 * encoder.features * (images * (1 + VIEWS) + measured)
    else:
        centers = center if isinstance(settings, STMLSettings) and settings.batches == "whitened" else 0
        learning = 2 * (pace.learn + pace.look)  # student and teacher see two views
        seconds = epochs * (images * (learning + whole + centers) + looking / settings.eval_every)
        if done == 0:
            seconds += images * whole + looking
        if backbone.pretrained:  # the untrained models and the trained one are measured
            seconds += 2 * (min(images, most_measured(device)) * (whole + center) + looking)
        each = bytes_per_view(encoder, settings.precision == "bf16-mixed")
        kept = each * (part_size(settings) or own_rows(settings))
        memory = 4 * COPIES * parameters + (kept if device.type == "cuda" else int(IN_USE * kept))
    if device.type != "cuda":
        memory += PROCESS
    decoded = 0 if settings.cache_side is None else int(3 * settings.cache_side**2 * ASPECT) * (images + measured)
    return Estimate(seconds / world(), memory, saved, decoded)


def describe_estimate(found: Estimate, settings: Settings, device: torch.device, run: Path, done: int) -> str:
    """An estimate in one line, with the memory and disk that are free."""
    assert settings.epochs is not None
    most = "at most about" if device.type == "cuda" else "about"  # a few views do not keep a GPU busy
    epochs = settings.epochs - done
    told = (
        f"{most} {duration(found.seconds)} for {epochs} epoch{'s' if epochs != 1 else ''} on this {device.type} device"
    )
    told += f"; about {_size(found.memory)} of its memory{_free(free_memory(device))}"
    told += f"; up to {_size(found.saved)} of disk for the run{_free(_free_disk(run))}"
    if found.decoded:
        told += f" and {_size(found.decoded)} for decoded images{_free(_free_disk(cache_root()))}"
    return told


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 / 10 else f"{max(1, round(count / 2**20))} MiB"


def _free(count: int | None) -> str:
    return "" if count is None else f" ({_size(count)} free)"


def _free_disk(place: Path) -> int | None:
    place = place.absolute()
    try:
        return shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.exists())).free
    except (OSError, StopIteration):
        return None
