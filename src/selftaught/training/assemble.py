"""From a run's record to the parts that the loop works with."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from selftaught.console import Interrupts, Reporter
from selftaught.data import CachedReader, DecodedCache, FileReader, ImageFolder, ImageReader
from selftaught.devices import choose_device
from selftaught.embedder import Embedder
from selftaught.encoding import views_in_training
from selftaught.errors import UsageError, printable
from selftaught.learners import Learner, build_learner, change_settings
from selftaught.networks import (
    Backbone,
    Encoder,
    Preprocessing,
    build_backbone,
    parameter_groups,
    with_global_batch_norm,
)
from selftaught.parallel import run_on_first
from selftaught.recipes import LARGEST, NEIGHBORS, Settings
from selftaught.run_folder import Choice, RunRecord, write_record
from selftaught.training.automatic import resolve
from selftaught.training.estimate import Pace, choose_epochs, describe_estimate, estimate, measure_pace
from selftaught.training.evaluation import Evaluation, Passes
from selftaught.training.fabric import Fabric
from selftaught.training.frozen_backbone import FeatureReader
from selftaught.training.images import RunImages, class_numbers
from selftaught.training.logbook import Logbook
from selftaught.training.optimizer import AdamP
from selftaught.training.processes import make_fabric
from selftaught.training.semi_supervised import Stage
from selftaught.training.start import Start, begin_with, read_origin, read_start


@dataclass(frozen=True)
class Context:
    """Values that all stages of a run share and that no record holds."""

    run: Path
    own: nn.Module | None
    """The caller's module, if the backbone is one."""
    overrides: Mapping[str, Any]
    """Settings that a resumed run may change."""
    reporter: Reporter
    interrupts: Interrupts
    told: list[Choice] = field(default_factory=list)
    """The choices that were told last, which need not be told again."""
    origins: dict[str, tuple[Start, Embedder]] = field(default_factory=dict)
    """What was loaded of the run whose network this one begins with, until it is taken."""

    @property
    def command(self) -> str:
        """The command that continues the run."""
        return f"selftaught train --resume {shlex.quote(printable(self.run))}"

    def go_on(self, begun: bool) -> str:
        """What to do after a stop; ``begun``: the run can be resumed."""
        return f"go on with: {self.command}" if begun else "start it again with the same command"

    def origin(self, run: str) -> tuple[Start, Embedder]:
        """The network of the run that this one begins with, and its model; loaded once."""
        if run not in self.origins:
            self.origins[run] = read_origin(run, self.own)
        return self.origins[run]

    def take_origin(self, run: str, device: torch.device) -> Embedder:
        """The model of that run on a device, and no longer kept here."""
        _, model = self.origin(run)
        self.origins.clear()
        model.network.to(device)
        return model


@dataclass(frozen=True)
class Parts:
    """Everything the loop works with."""

    folder: Path
    record: RunRecord
    settings: Settings
    images: ImageFolder
    labeled: ImageFolder | None
    """Images to measure on."""
    learner: Learner
    module: Any
    """The learner as Fabric wraps it."""
    optimizer: Optimizer
    fabric: Fabric
    images_reader: ImageReader
    reader: ImageReader
    """It reads images too, or their features where only the heads learn."""
    logbook: Logbook
    context: Context
    passes: Passes

    @cached_property
    def evaluation(self) -> Evaluation:
        return Evaluation(self, self.reader, self.passes)

    @cached_property
    def survey(self) -> Evaluation:
        """Like ``evaluation``, but it always reads images."""
        return Evaluation(self, self.images_reader)


def prepare(
    stage: Stage,
    images: RunImages,
    resumed: bool,
    context: Context,
    start: Start | None,
    done: int | None = None,
    neighbors: Choice | None = None,
) -> tuple[RunRecord, Backbone, torch.device]:
    """Choose the open settings and print them; for a new run, or if ``done`` is given, print an estimate too.

    ``neighbors``: what was found to be right for these images, if that is known already. Nothing is written.
    """
    requested = change_settings(stage.record.requested, context.overrides)
    known = stage.record.settings
    if known is not None:  # resumed: equal parts round equally
        requested = replace(requested, rows_at_once=known.rows_at_once or LARGEST)
    device = make_fabric(choose_device(requested.device), "32-true").device
    torch.manual_seed(requested.seed)
    backbone = _choose_backbone(stage.record, requested, context.own, resumed, start)
    if done is None and not resumed:
        done = 0
    pace = None if done is None else measure_pace(Encoder(backbone.module, backbone.preprocessing).to(device), device)
    count, measured = len(images.training), len(images.evaluation or ())
    first = [] if requested.neighbors is not None else [neighbors or _usual_neighbors(stage.record, resumed)]
    first += _choose_length(requested, stage.record, count, backbone, device, pace)
    requested = replace(requested, **{choice.name: choice.value for choice in first})
    chosen, choices = resolve(requested, count, backbone, device, stage.record.leg)
    if known is not None:
        chosen = replace(chosen, rows_at_once=known.rows_at_once)
        choices = [choice for choice in choices if choice.name != "rows_at_once"]
        choices += [choice for choice in stage.record.choices if choice.name == "rows_at_once"]
    backbone = _used_at(backbone, chosen)
    record = replace(
        stage.record,
        settings=chosen,
        choices=(*first, *choices),
        backbone=backbone.name,
        preprocessing=backbone.preprocessing,
        pretrained=backbone.pretrained,
    )
    _tell(record, chosen, count, context)
    if done is not None and pace is not None:
        found = estimate(chosen, count, measured, backbone, device, pace, done)
        context.reporter.say(describe_estimate(found, chosen, device, stage.folder, done))
    return record, backbone, device


@contextmanager
def assemble(
    stage: Stage, images: RunImages, resumed: bool, context: Context, passes: Passes, neighbors: Choice | None = None
) -> Iterator[Parts]:
    """The parts of a stage with these images; ``resumed``: its weights will come from a checkpoint."""
    with context.interrupts.at_once():
        start = None if resumed else find_start(stage, context)
        record, backbone, device = prepare(stage, images, resumed, context, start, neighbors=neighbors)
        run_on_first(lambda: write_record(stage.folder, record))
        chosen = record.settings
        assert chosen is not None
        assert chosen.pooling is not None
        frozen = chosen.train == "heads"
        if frozen:
            backbone.module.requires_grad_(False)
        encoder = Encoder(backbone.module, backbone.preprocessing, bool(chosen.freeze_batch_norm), chosen.pooling)
        learner = build_learner(encoder, chosen, len(images.training), class_numbers(images.training, chosen.method))
        if start is not None:
            begin_with(learner, start)
        with_global_batch_norm(learner)
        reader = source = make_reader(chosen, backbone.preprocessing, stage.collection, device)
    try:
        reader.prepare(images.training, images.evaluation)
        fabric = make_fabric(device, chosen.precision)
        learner.to(device)  # otherwise Fabric warns that only the backbone is there
        module, optimizer = fabric.setup(learner, make_optimizer(learner, chosen))
        learner.train()
        if frozen:
            reader = features = FeatureReader(
                source, encoder, stage.folder, images, chosen.seed, device, context.reporter, context.interrupts
            )
            if not resumed and start is None:
                features.start(learner.network)
        yield Parts(
            folder=stage.folder,
            record=record,
            settings=chosen,
            images=images.training,
            labeled=images.evaluation,
            learner=learner,
            module=module,
            optimizer=optimizer,
            fabric=fabric,
            images_reader=source,
            reader=reader,
            logbook=Logbook(stage.folder, record.tensorboard),
            context=context,
            passes=passes,
        )
    finally:
        reader.close()


def make_reader(chosen: Settings, inputs: Preprocessing, collection: Path, device: torch.device) -> ImageReader:
    """The reader of a collection's images; ``collection`` also names the cache of decoded images."""
    views, workers = views_in_training(inputs, chosen), chosen.workers or 0
    if chosen.input == "files":
        return FileReader(views, workers, device)
    assert chosen.cache_side is not None
    return CachedReader(views, chosen.cache_side, workers, device, DecodedCache(str(collection.absolute())))


def _usual_neighbors(record: RunRecord, resumed: bool) -> Choice:
    if resumed and record.settings is not None:
        return Choice("neighbors", record.settings.neighbors, "as chosen when the run was started")
    return Choice("neighbors", NEIGHBORS, "as in the paper, unless there are only a few photos of each thing")


def _choose_length(
    requested: Settings, record: RunRecord, images: int, backbone: Backbone, device: torch.device, pace: Pace | None
) -> list[Choice]:
    """The number of epochs, if it is open. It depends on measured time, so it is recorded, and processes share it."""
    if requested.epochs is not None:
        return []
    if record.settings is not None:
        return [Choice("epochs", record.settings.epochs, "as chosen when the run was started")]
    assert pace is not None
    return [run_on_first(lambda: choose_epochs(requested, images, backbone, device, pace))]


def _used_at(backbone: Backbone, chosen: Settings) -> Backbone:
    """The backbone with the image size that the trained model will use."""
    size = backbone.preprocessing.use_size if chosen.use_size is None else chosen.use_size
    try:
        return replace(backbone, preprocessing=replace(backbone.preprocessing, use_size=size))
    except ValueError as error:
        raise UsageError(f"use_size {size}: {error}") from None


def make_optimizer(learner: Learner, settings: Settings) -> Optimizer:
    """The optimizer that the settings ask for, with all of a learner's parameters."""
    assert settings.lr is not None
    groups = parameter_groups(learner.network, settings.lr, settings.head_lr)
    groups += learner.extra_groups(settings.head_lr)
    if settings.optimizer == "sgd":
        return SGD(groups, momentum=0.9, weight_decay=settings.weight_decay)
    return AdamP(groups, betas=(0.9, 0.999), weight_decay=settings.weight_decay, nesterov=True)


def find_start(stage: Stage, context: Context) -> Start | None:
    """The network that a stage starts from; None if it starts from a backbone by name."""
    if stage.starts_from is not None:
        return read_start(stage.starts_from)
    return None if stage.record.from_run is None else context.origin(stage.record.from_run)[0]


def _choose_backbone(
    record: RunRecord, requested: Settings, own: nn.Module | None, resumed: bool, start: Start | None
) -> Backbone:
    """The backbone of a record; ``resumed``: its weights come from a checkpoint."""
    known = record.preprocessing  # as it was given, if the run was stopped before its first checkpoint
    if start is not None:
        module = own if own is not None else build_backbone(start.backbone, "none").module
        return Backbone(start.backbone, module, start.preprocessing, start.pretrained, start.reason)
    if resumed:
        assert record.backbone is not None
        assert known is not None
        module = own if own is not None else build_backbone(record.backbone, "none").module
        return Backbone(record.backbone, module, known, bool(record.pretrained), "weights from the checkpoint")
    if own is not None:
        name = f"{type(own).__module__}.{type(own).__qualname__}"
        return Backbone(name, own, known or Preprocessing(), True, "a module of your own")
    backbone = build_backbone(requested.backbone, requested.weights)
    if known is None or record.backbone not in (None, backbone.name):
        return backbone
    return replace(backbone, preprocessing=known)


def _tell(record: RunRecord, chosen: Settings, count: int, context: Context) -> None:
    say = context.reporter.say
    say(f"{count} images in {' and '.join(map(printable, record.sources))}")
    if chosen.method != "stml":
        say(f"  method {chosen.method}")
    for choice in record.choices:
        if choice not in context.told:
            say(f"  {choice}")
    context.told[:] = record.choices
