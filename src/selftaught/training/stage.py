"""One stage of training, from settings to a model: everything around the loop. Most runs have one."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from selftaught.data import Reader, Views
from selftaught.embedder import Embedder, choose_device, describe
from selftaught.errors import Collapse, shown
from selftaught.files import remove_leftovers
from selftaught.learners import Learner, build_learner
from selftaught.networks import Backbone, EmbeddingNetwork, Encoder, Preprocessing
from selftaught.recipes import Settings
from selftaught.training.automatic import Choice, automatic_workers, resolve
from selftaught.training.checkpoint import load_checkpoint
from selftaught.training.interrupts import Interrupts
from selftaught.training.logbook import Logbook, signals_line
from selftaught.training.loop import Loop
from selftaught.training.measure import Measurements
from selftaught.training.prepare import choose_backbone, class_numbers, make_fabric, readable_images
from selftaught.training.progress import Reporter
from selftaught.training.saved import write_settings
from selftaught.training.semi import started_network


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
    remove_leftovers(run)
    device = choose_device(requested.device)
    torch.manual_seed(requested.seed)
    state = load_checkpoint(run)
    workers = automatic_workers(requested).value
    images, labeled = readable_images(run, saved, state[1] if state else None, workers, reporter, interrupts)
    start = started_network(run, saved) if state is None else None
    backbone = choose_backbone(start.saved if start else saved, requested, own, preprocessing, bool(state or start))
    chosen, choices = resolve(requested, len(images), backbone, device)
    _note(run, saved, chosen, choices, backbone, reporter, len(images))

    encoder = Encoder(backbone.module, backbone.preprocessing, bool(chosen.freeze_batch_norm))
    learner = build_learner(encoder, chosen, len(images), class_numbers(images, chosen.method))
    if start is not None:
        learner.start_from(start.network)
    fabric = make_fabric(device, chosen.precision)
    inputs = backbone.preprocessing
    views = Views(inputs.size, inputs.resize, inputs.squash, chosen.crop_scale)
    reader = Reader(views, chosen.workers or 0, pin_memory=device.type == "cuda")
    try:
        measurements = Measurements(learner, fabric, reader, reporter, interrupts, chosen.seed, labeled)
        logbook = Logbook(run, saved["tensorboard"])
        loop = Loop(
            run, learner, images, chosen, fabric, reader, measurements, logbook, reporter, interrupts, resumed_as
        )
        if state is None:
            progress = loop.begin()
            reporter.say(f"before training: {signals_line(progress.start)}")
        else:
            content, progress = state
            loop.restore(content)
            reporter.say(f"resumed after epoch {progress.epoch} and step {progress.step} of the next")
        logbook.resume(progress)
        description = _describe(saved, backbone, learner, chosen)
        try:
            loop.go(progress)
        except Collapse:
            good = load_checkpoint(run)
            assert good is not None
            loop.restore(good[0])
            _finished(learner, description | {"finished": False}).save(run)
            raise
        finally:
            logbook.close(progress)
    finally:
        reader.close()
    embedder = _finished(learner, description)
    embedder.save(run)
    last = progress.history[-1] if progress.history else progress.start
    reporter.say(f"the model is in {shown(run)}: {signals_line(last)}")
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
    reporter.say(f"{count} images in {' and '.join(map(shown, places))}")
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
        metric="cosine" if learner.network.normalize else "euclidean",
        settings=asdict(chosen),
    )


def _finished(learner: Learner, description: dict[str, Any]) -> Embedder:
    network = learner.network
    return Embedder(EmbeddingNetwork(network.encoder, {"f": network.heads["f"]}, network.normalize), description)
