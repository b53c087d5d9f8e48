"""Settings left open are chosen here, each with its reason."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from selftaught.devices import available_cores, free_memory, has_bfloat16
from selftaught.errors import SelftaughtError, UsageError
from selftaught.launched import launched
from selftaught.learners import STML, ClusterSettings, STMLSettings, find_method
from selftaught.networks import Backbone, Encoder, suited_pooling, suited_size
from selftaught.parallel import all_gather_list, world
from selftaught.recipes import NEIGHBORS, Settings
from selftaught.retrieval import APPROXIMATE_FROM, choose_search, nearest
from selftaught.run_folder import Choice
from selftaught.training.gradient_parts import bytes_per_view, draws_numbers, own_rows, part_size
from selftaught.training.legs import SETTLED_AFTER, scheduled_epochs

BATCH_SIZE = 120
STEPS_PER_EPOCH = 8
FEWEST_QUERIES = 12
CACHE_SIDE = 1.5
"""Short side of a decoded image in units of a crop: a random crop of mean area is then about as large as its view."""
COMPILE_FROM = 300_000
"""From this many images in all epochs on, compiling saves more time than it takes."""
RATE, FULL_RATE_FROM, LEAST_SHARE = 1e-4, 400, 0.3
"""The learning rate of a pretrained backbone: the full one from this many steps on, in shorter runs in proportion to
their steps, down to a share of it. At the full rate, a few steps did harm that further steps would have to mend."""
LEAST_MOMENTUM = 0.998
"""In a short run this keeps the teacher near its start, as in the runs that were tried."""
MEMORY_SHARE, COMPILED, FEWEST_ROWS = 0.45, 0.5, 4
"""The share of the free memory that a batch may take; the share of that memory which compiled networks take (ResNet50 a
third); and the fewest views that go through the network together."""
RECORDED_SHARE = 0.3
"""Instead of MEMORY_SHARE, for parts that are recorded as a CUDA graph: it keeps its memory, and others need theirs."""
CLUSTERS = 100
"""About the number of classes of CUB and Cars; our choice, since a folder without labels does not tell its classes."""


def resolve(
    settings: Settings, images: int, backbone: Backbone, device: torch.device, leg: int = 0
) -> tuple[Settings, list[Choice]]:
    """Settings without anything left open, and the choices that were made; ``leg``: epochs before the last leg.

    Neighbors and epochs must be known: they depend on the images and on measured time, see :func:`choose_neighbors`
    and :func:`selftaught.training.choose_epochs`.
    """
    batch_norm, batch_size = _batch_norm(settings, backbone), _batch_size(settings, images)
    schedule = _schedule(settings, backbone, leg)
    settings = replace(settings, batch_size=batch_size.value, **{choice.name: choice.value for choice in schedule})
    precision = _precision(settings, backbone, device)
    compiled = device.type == "cuda" and bool(_compile(settings, images, device, batch_norm).value)
    rows = _rows_at_once(settings, backbone, device, bool(batch_norm.value), precision.value, compiled)
    settings = replace(settings, rows_at_once=rows[0].value) if rows else settings
    choices = [
        Choice("backbone", backbone.name, backbone.reason),
        Choice("crop", backbone.preprocessing.size, f"the input size of {backbone.name}"),
        *choose_use_size(settings, backbone),
        *_pooling(settings, backbone),
        batch_size,
        *schedule,
        *_rate(settings, images, backbone, leg),
        *_momentum(settings, images, leg),
        batch_norm,
        *_clusters(settings, images),
        precision,
        *rows,
        _compile(settings, images, device, batch_norm),
        *_search(settings, images, device),
        *_cache_side(settings, backbone),
        _workers(settings),
    ]
    changes: dict[str, Any] = {choice.name: choice.value for choice in choices if choice.name != "crop"}
    return replace(settings, **changes), choices


def _batch_size(settings: Settings, images: int) -> Choice:
    k = settings.per_query
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
    standard = max(BATCH_SIZE // k, 2) * k
    size = min(standard, max(images // STEPS_PER_EPOCH, FEWEST_QUERIES * k), images) // k * k
    if size == standard:
        return Choice("batch_size", size, f"{size // k} queries with {k} images each, as in the paper")
    return Choice("batch_size", size, f"less than the paper's {standard}, because there are only {images} images")


def choose_use_size(settings: Settings, backbone: Backbone) -> list[Choice]:
    """The size in pixels at which the finished model is used, if it is not that of the backbone."""
    inputs = backbone.preprocessing
    if settings.use_size is not None:
        return [Choice("use_size", settings.use_size, "as asked for")]
    size = suited_size(inputs, settings.use_scale)
    if size == inputs.use_size:
        return []
    larger = f"{settings.use_scale:.3g} times the crop, as random crops make things look larger than they are"
    return [Choice("use_size", size, larger)]


def _pooling(settings: Settings, backbone: Backbone) -> list[Choice]:
    return [] if settings.pooling is not None else [Choice("pooling", *suited_pooling(backbone.name))]


def choose_neighbors(things: int | None) -> Choice:
    """The number of images per query, by about how many photos of one thing there are.

    Fewer than those, as the estimate may be one too high: images that show other things teach what is wrong, and
    leaving some out costs little (docs/best.md).
    """
    if things is None:
        return Choice("neighbors", NEIGHBORS, "as in the paper; how many photos there are of one thing cannot be told")
    value = max(k for k in (2, 3, NEIGHBORS) if k < max(3, things))
    return Choice("neighbors", value, f"there seem to be about {things} photos of one thing")


def _schedule(settings: Settings, backbone: Backbone, leg: int) -> list[Choice]:
    assert settings.epochs is not None
    if settings.schedule is not None:
        return []
    if settings.epochs - leg <= SETTLED_AFTER or not backbone.pretrained or settings.train == "heads":
        return [Choice("schedule", "cosine", "over all epochs")]
    reason = f"rates fall within {SETTLED_AFTER} epochs and then stay low: learning on at higher ones gained nothing"
    return [Choice("schedule", "settle", reason)]


def _steps(settings: Settings, images: int, leg: int) -> int:
    """The number of steps in which the rates fall."""
    assert settings.batch_size is not None
    return max(1, scheduled_epochs(settings, leg) * (images // settings.batch_size))


def _rate(settings: Settings, images: int, backbone: Backbone, leg: int) -> list[Choice]:
    if settings.lr is not None:
        return []
    if not backbone.pretrained or settings.train == "heads":
        return [Choice("lr", RATE, "the authors' rate")]
    steps = _steps(settings, images, leg)
    share = min(1, max(LEAST_SHARE, steps / FULL_RATE_FROM))
    return [Choice("lr", RATE * share, f"of the backbone, for {steps} steps; {RATE:g} from {FULL_RATE_FROM} steps on")]


def _momentum(settings: Settings, images: int, leg: int) -> list[Choice]:
    if not isinstance(settings, STMLSettings) or settings.momentum is not None:
        return []
    steps = _steps(settings, images, leg)
    return [Choice("momentum", max(LEAST_MOMENTUM, 1 - 1 / steps), f"by the number of steps, {steps}")]


def _batch_norm(settings: Settings, backbone: Backbone) -> Choice:
    if settings.train == "heads":
        return Choice("freeze_batch_norm", True, "the backbone stays as it is")
    if settings.freeze_batch_norm is not None:
        return Choice("freeze_batch_norm", settings.freeze_batch_norm, "as asked for")
    if backbone.pretrained:
        return Choice("freeze_batch_norm", True, "the weights are pretrained, and training it loses points")
    return Choice("freeze_batch_norm", False, "the weights are random, so its statistics must be learned")


def _clusters(settings: Settings, images: int) -> list[Choice]:
    if not isinstance(settings, ClusterSettings):
        return []
    most = images // settings.per_query
    if settings.clusters is not None:
        if settings.clusters > most:
            raise UsageError(f"{settings.clusters} clusters are too many for {images} images: give at most {most}")
        return [Choice("clusters", settings.clusters, "as asked for")]
    reason = f"at most {CLUSTERS}, and {settings.per_query} images each"
    return [Choice("clusters", min(CLUSTERS, max(2, most)), reason)]


def _precision(settings: Settings, backbone: Backbone, device: torch.device) -> Choice:
    if settings.precision != "auto":
        return Choice("precision", settings.precision, "as asked for")
    if settings.train == "heads":
        return Choice("precision", "32-true", "features are computed as a finished model computes them")
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return Choice("precision", "bf16-mixed", "the GPU computes in bfloat16; similarity and losses stay in float32")
    grouped = any(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in backbone.module.modules())
    if device.type == "cpu" and has_bfloat16() and not grouped:  # in grouped convolutions it is slower than float32
        return Choice("precision", "bf16-mixed", "the CPU computes in bfloat16; similarity and losses stay in float32")
    return Choice("precision", "32-true", f"full precision on this {device.type} device")


def _rows_at_once(
    settings: Settings, backbone: Backbone, device: torch.device, frozen: bool, precision: str, compiled: bool
) -> list[Choice]:
    """The size of the parts in which a process takes its share of a batch, if that does not fit into free memory."""
    assert settings.batch_size is not None
    rows = own_rows(settings)
    possible = issubclass(find_method(settings.method).learner, STML) and frozen and settings.train == "all"
    if settings.rows_at_once is not None and settings.rows_at_once >= rows:
        return [Choice("rows_at_once", settings.rows_at_once, "as asked for")]
    if possible:
        encoder = Encoder(backbone.module, backbone.preprocessing, freeze_batch_norm=True).to(device).train()
        possible = not draws_numbers(encoder)
    if settings.rows_at_once is not None:
        if not possible:
            raise UsageError(
                "rows_at_once needs the method stml, frozen batch norm, --train all and a backbone without dropout"
            )
        return [Choice("rows_at_once", settings.rows_at_once, "as asked for")]
    free = free_memory(device) if possible else None
    if free is None:
        return []
    each = max(1, int(bytes_per_view(encoder, precision == "bf16-mixed") * (COMPILED if compiled else 1)))
    views = min(all_gather_list([free / each]))  # all processes take parts of one size
    if MEMORY_SHARE * views >= rows:
        return []
    share = RECORDED_SHARE if compiled else MEMORY_SHARE
    most = f"{share * free / 2**30:.1f} of the {free / 2**30:.1f} that are free"
    reason = f"{rows} would take {rows * each / 2**30:.1f} GiB, and they may take {most}"
    sizes = [size for size in range(1, rows) if rows % size == 0 and size <= max(FEWEST_ROWS, share * views)]
    return [Choice("rows_at_once", sizes[-1], reason)]


def _compile(settings: Settings, images: int, device: torch.device, batch_norm: Choice) -> Choice:
    if settings.train == "heads":
        return Choice("compile", False, "there is only little to compute")
    if world() > 1 and not batch_norm.value:
        return Choice("compile", False, "batch norm learns, over several processes")
    assert settings.batch_size is not None
    size = part_size(settings)
    if size is not None and (own_rows(settings) % size or settings.batch_size % world()):
        return Choice("compile", False, "batches are taken in parts of different sizes")
    if settings.compile is not None:
        return Choice("compile", settings.compile, "as asked for")
    if device.type != "cuda":
        return Choice("compile", False, f"on this {device.type} device it gains little")
    assert settings.epochs is not None
    seen = settings.epochs * images
    reason = f"{seen:,} images in all epochs, where it pays from {COMPILE_FROM:,} on"
    return Choice("compile", seen >= COMPILE_FROM, reason)


def _search(settings: Settings, images: int, device: torch.device) -> list[Choice]:
    if not isinstance(settings, STMLSettings) or settings.batches == "random":
        return []
    if settings.search == "auto" and images < APPROXIMATE_FROM:
        return []
    search, reason = choose_search(settings.search, images, device)
    return [Choice("search", "exact" if search is nearest else "approximate", reason.partition(": ")[2])]


def _cache_side(settings: Settings, backbone: Backbone) -> list[Choice]:
    if settings.input == "files":
        return []
    if settings.cache_side is not None:
        return [Choice("cache_side", settings.cache_side, "as asked for")]
    size = backbone.preprocessing.size
    side = round(CACHE_SIDE * size)
    return [Choice("cache_side", side, f"decoded images are kept {CACHE_SIDE:g} times as large as a crop of {size}")]


def _workers(settings: Settings) -> Choice:
    if settings.workers is not None:
        return Choice("workers", settings.workers, "as asked for")
    cores, found = available_cores(), launched()
    cores = max(1, cores // found.on_this_machine) if found else cores
    return Choice("workers", min(cores, 16), f"processes that read images, on {cores} available cores")
