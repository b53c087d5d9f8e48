"""How much time, memory and disk a run will take, printed before it starts, and how many epochs there is time for."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from selftaught.console import duration
from selftaught.data import cache_root
from selftaught.devices import free_memory
from selftaught.errors import counted
from selftaught.learners import STMLSettings
from selftaught.networks import Backbone, Encoder
from selftaught.parallel import world
from selftaught.recipes import Settings
from selftaught.run_folder import Choice
from selftaught.training.automatic import BATCH_SIZE, choose_use_size
from selftaught.training.floor import most_measured
from selftaught.training.frozen_backbone import KEPT_VIEWS
from selftaught.training.gradient_parts import bytes_per_view, own_rows, part_size

EPOCHS, FEWEST_EPOCHS, MOST_STEPS = 30, 3, 3000
"""The length of a run if the user gives none."""
PATIENCE = 2400.0
"""Seconds that a run without a GPU may take if the user gives no length."""
TIMED_VIEWS, TIMED_RUNS = 8, 4
"""Views that are timed together, and how often: the fastest counts, as other programs may take the machine's time."""
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
LOOKED_AT = 8
"""Views that a CPU embeds at once: training the heads on EfficientNet-Lite0 took 2.0 GiB."""


@dataclass(frozen=True)
class Pace:
    """Seconds per view: to learn from it, or only to embed it."""

    learn: float
    look: float


@dataclass(frozen=True)
class Estimate:
    """What a run takes: seconds, and bytes of memory, of disk for its folder, and for decoded images."""

    seconds: float
    memory: int
    saved: int
    decoded: int


def measure_pace(encoder: Encoder, device: torch.device, count: int = TIMED_VIEWS, bfloat16: bool = False) -> Pace:
    """The approximate speed of a network, measured with ``count`` views at once."""
    size = encoder.preprocessing.size
    views = torch.zeros(count, 3, size, size, dtype=torch.uint8, device=device)

    def run(learn: bool) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        with torch.set_grad_enabled(learn), torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            features = encoder(views)
            if learn and features.requires_grad:
                features.sum().backward()
                encoder.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    was_training = encoder.training
    encoder.eval()  # otherwise the statistics of batch norm would change
    run(True)  # the first run also does what is done only once
    learned, seen = (min(run(learn) for _ in range(TIMED_RUNS)) for learn in (True, False))
    encoder.train(was_training)
    return Pace(learned / count, seen / count)


def choose_epochs(settings: Settings, images: int, backbone: Backbone, device: torch.device, pace: Pace) -> Choice:
    """The number of epochs if the user gives none: on a CPU, as many as a user may want to wait for."""
    if device.type == "cuda" or settings.train == "heads":
        most = max(FEWEST_EPOCHS, MOST_STEPS * BATCH_SIZE // images)
        return Choice("epochs", min(EPOCHS, most), f"{EPOCHS}, fewer for very many images")
    epoch, beside = predict_seconds(settings, images, 0, backbone, device, pace)
    epochs = min(EPOCHS, max(1, int((PATIENCE - beside) / epoch)))
    reason = f"as many as fit into {PATIENCE / 60:.0f} minutes without a GPU, at {duration(epoch)} each"
    return Choice("epochs", epochs, f"{reason}; at least 1 and at most {EPOCHS}")


def predict_seconds(
    settings: Settings, images: int, measured: int, backbone: Backbone, device: torch.device, pace: Pace
) -> tuple[float, float]:
    """The seconds of an epoch, and of what a new run does beside its epochs; ``measured``: images with labels."""
    inputs = backbone.preprocessing
    used = next((choice.value for choice in choose_use_size(settings, backbone)), inputs.use_size)
    center, whole = (pace.look * (side / inputs.size) ** 2 / world() for side in (used, inputs.squash))
    scoring = measured * center
    if settings.train == "heads":  # every view is embedded once, and learning takes little
        return 0.0, images * (1 + KEPT_VIEWS) * pace.look / world() + scoring
    centers = center if isinstance(settings, STMLSettings) and settings.batches == "whitened" else 0
    learning = 2 * (pace.learn + pace.look) / world()  # student and teacher see two views
    beside = images * whole + scoring
    if backbone.pretrained:  # the untrained models and the trained one are measured
        beside += 2 * (min(images, most_measured(device)) * (whole + center) + scoring)
    return images * (learning + whole + centers) + scoring / settings.eval_every, beside


def estimate(
    settings: Settings, images: int, measured: int, backbone: Backbone, device: torch.device, pace: Pace, done: int = 0
) -> Estimate:
    """What it takes to train on ``images`` images and to score ``measured`` others; ``done`` epochs are over."""
    assert settings.epochs is not None
    epochs = settings.epochs - done
    epoch, beside = predict_seconds(settings, images, measured, backbone, device, pace)
    parameters = sum(parameter.numel() for parameter in backbone.module.parameters())
    encoder = Encoder(backbone.module, backbone.preprocessing, bool(settings.freeze_batch_norm)).to(device).eval()
    copies = SAVED + (SNAPSHOT * (2 + epochs // settings.snapshots) if settings.snapshots else 0)
    saved = 4 * copies * (parameters + encoder.features * (settings.dim + encoder.features))
    if settings.train == "heads":
        memory = 4 * parameters
        if device.type == "cpu":
            memory += int(IN_USE * LOOKED_AT * bytes_per_view(encoder, False))
        saved += 4 * encoder.features * (images * (1 + KEPT_VIEWS) + measured)
    else:
        each = bytes_per_view(encoder, settings.precision == "bf16-mixed")
        kept = each * (part_size(settings) or own_rows(settings))
        memory = 4 * COPIES * parameters + (kept if device.type == "cuda" else int(IN_USE * kept))
    if device.type != "cuda":
        memory += PROCESS
    decoded = 0 if settings.cache_side is None else int(3 * settings.cache_side**2 * ASPECT) * (images + measured)
    return Estimate(epochs * epoch + beside, memory, saved, decoded)


def describe_estimate(found: Estimate, settings: Settings, device: torch.device, run: Path, done: int) -> str:
    """An estimate in one line, with the memory and disk that are free."""
    assert settings.epochs is not None
    most = "at most about" if device.type == "cuda" else "about"  # a few views do not keep a GPU busy
    epochs = counted(settings.epochs - done, "epoch")
    told = f"{most} {duration(found.seconds)} for {epochs} on this {device.type} device"
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
