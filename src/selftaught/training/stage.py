"""One stage of training, from settings to a model: everything around the loop. Most runs have one."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from selftaught.data import CachedReader, ImageFolder
from selftaught.embedder import Embedder, choose_device, describe
from selftaught.errors import Collapse, printable
from selftaught.files import remove_leftovers
from selftaught.learners import Learner, build_learner
from selftaught.networks import Backbone, EmbeddingNetwork, Encoder, Preprocessing, with_global_batch_norm
from selftaught.parallel import first_decides, rank
from selftaught.recipes import Settings
from selftaught.training.automatic import Choice, resolve
from selftaught.training.checkpoint import CHECKPOINT, Progress, load_checkpoint
from selftaught.training.features import remove_features
from selftaught.training.heads import FeatureReader
from selftaught.training.interrupts import Interrupts
from selftaught.training.logbook import Logbook, signals_line
from selftaught.training.loop import Loop
from selftaught.training.measure import Measurements, Unreadable
from selftaught.training.prepare import LeftOut, choose_backbone, class_numbers, listed_images, make_reader
from selftaught.training.processes import make_fabric
from selftaught.training.progress import Reporter
from selftaught.training.saved import write_settings
from selftaught.training.semi import started_network

EMBEDDED_AT_ONCE, EMBEDDED_ON_CPU = 256, 64


def train_stage(
    run: Path,
    saved: dict[str, Any],
    requested: Settings,
    own: nn.Module | None,
    preprocessing: Preprocessing | None,
    reporter: Reporter,
    interrupts: Interrupts,
    resumed_as: Path | None = None,
) -> Embedder:
    """Train what ``saved`` and ``requested`` describe, from wherever it is; ``resumed_as``: the run it is a part of."""
    if rank() == 0:
        remove_leftovers(run)
    device = make_fabric(choose_device(requested.device), "32-true").device
    stage = _Stage(run, saved, requested, own, preprocessing, reporter, interrupts, resumed_as, device)
    state = load_checkpoint(run)
    images, labeled = listed_images(saved, state[1] if state else None)
    left_out = LeftOut(run, saved["allow_skipped"], reporter)
    while True:
        try:
            return stage.train(state, images, labeled)
        except Unreadable as error:  # found when all images were first looked at: once more, without them
            if state is not None or (run / CHECKPOINT).exists():
                raise
            if error.images is images:
                images = left_out.leave_out(images, error.skipped)
            else:
                labeled = left_out.leave_out(error.images, error.skipped)


@dataclass(frozen=True)
class _Stage:
    """What is the same however often a stage begins."""

    run: Path
    saved: dict[str, Any]
    requested: Settings
    own: nn.Module | None
    preprocessing: Preprocessing | None
    reporter: Reporter
    interrupts: Interrupts
    resumed_as: Path | None
    device: torch.device

    def train(
        self, state: tuple[dict[str, Any], Progress] | None, images: ImageFolder, labeled: ImageFolder | None
    ) -> Embedder:
        run, saved, requested, reporter, device = self.run, self.saved, self.requested, self.reporter, self.device
        torch.manual_seed(requested.seed)
        start = started_network(run, saved) if state is None else None
        backbone = choose_backbone(
            start.saved if start else saved, requested, self.own, self.preprocessing, bool(state or start)
        )
        chosen, choices = resolve(requested, len(images), backbone, device)
        first_decides(lambda: _note(run, saved, chosen, choices, backbone, reporter, len(images)))

        encoder = Encoder(backbone.module, backbone.preprocessing, bool(chosen.freeze_batch_norm))
        if chosen.train == "heads":
            encoder.requires_grad_(False)
        learner = build_learner(encoder, chosen, len(images), class_numbers(images, chosen.method))
        if start is not None:
            learner.start_from(start.network)
        with_global_batch_norm(learner)
        reader = make_reader(chosen, backbone.preprocessing, images.root, device)
        if chosen.train == "heads":
            reader = FeatureReader(
                reader, encoder, run, images, labeled, chosen.seed, device, reporter, self.interrupts
            )
        try:
            reader.prepare(images, labeled)
            fabric = make_fabric(device, chosen.precision)
            at_once = EMBEDDED_AT_ONCE if device.type == "cuda" else EMBEDDED_ON_CPU
            measurements = Measurements(
                learner, fabric, reader, reporter, self.interrupts, chosen.seed, labeled, at_once
            )
            logbook = Logbook(run, saved["tensorboard"])
            loop = Loop(
                run,
                learner,
                images,
                chosen,
                fabric,
                reader,
                measurements,
                logbook,
                reporter,
                self.interrupts,
                self.resumed_as,
            )
            if state is None:
                if isinstance(reader, FeatureReader) and start is None:
                    reader.start(learner.network)
                progress = loop.begin()
                reporter.say(f"before training: {signals_line(progress.start)}")
            else:
                content, progress = state
                loop.restore(content)
                reporter.say(f"resumed after epoch {progress.epoch} and step {progress.step} of the next")
            if isinstance(reader, CachedReader) and reader.cache.closed_because:
                reason = reader.cache.closed_because
                reporter.say(f"not all images are kept decoded: {reason}; the others are read anew in every epoch")
            logbook.resume(progress)
            description = _describe(saved, backbone, learner, chosen)
            try:
                loop.go(progress)
            except Collapse:
                good = load_checkpoint(run)
                assert good is not None
                loop.restore(good[0])
                _save(_finished(learner, description | {"finished": False}), run)
                raise
            finally:
                logbook.close(progress)
        finally:
            reader.close()
        embedder = _finished(learner, description)
        _save(embedder, run)
        remove_features(run)
        last = progress.history[-1] if progress.history else progress.start
        gained = f" (before training {progress.start['recall@1']:.1%})" if "recall@1" in last else ""
        reporter.say(f"the model is in {printable(run)}: {signals_line(last)}{gained}")
        return embedder


def _note(
    run: Path,
    saved: dict[str, Any],
    chosen: Settings,
    choices: list[Choice],
    backbone: Backbone,
    reporter: Reporter,
    count: int,
) -> None:
    """Write down and say what this run is made of."""
    saved |= {
        "settings": asdict(chosen),
        "choices": [asdict(choice) for choice in choices],
        "backbone": backbone.name,
        "preprocessing": asdict(backbone.preprocessing),
        "pretrained": backbone.pretrained,
    }
    write_settings(run, saved)
    places = [saved[name] for name in ("images", "labeled", "unlabeled") if saved[name] is not None]
    reporter.say(f"{count} images in {' and '.join(map(printable, places))}")
    if chosen.method != "stml":
        reporter.say(f"  method {chosen.method}")
    for choice in choices:
        reporter.say(f"  {choice}")


def _describe(saved: dict[str, Any], backbone: Backbone, learner: Learner, chosen: Settings) -> dict[str, Any]:
    return describe(
        backbone=backbone.name,
        own_backbone=bool(saved["own_backbone"]),
        preprocessing=backbone.preprocessing,
        dim=chosen.dim,
        head=learner.head,
        pooling=learner.network.encoder.pooling,
        metric="cosine" if learner.network.normalize else "euclidean",
        settings=asdict(chosen),
    )


def _finished(learner: Learner, description: dict[str, Any]) -> Embedder:
    network = learner.network
    return Embedder(EmbeddingNetwork(network.encoder, {"f": network.heads["f"]}, network.normalize), description)


def _save(embedder: Embedder, run: Path) -> None:
    if rank() == 0:
        embedder.save(run)
