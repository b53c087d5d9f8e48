"""From a folder of images to a run folder with a model: everything around the loop."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from selftaught.data import (
    Reader,
    Views,
    find_images,
)
from selftaught.embedder import Embedder, choose_device, describe
from selftaught.errors import Collapse, Interrupted, SelftaughtError, UsageError, shown
from selftaught.files import new_folder, remove_leftovers, write_atomically
from selftaught.learners import STML
from selftaught.networks import Backbone, EmbeddingNetwork, Encoder, Preprocessing
from selftaught.recipes import Settings, changed, from_saved, settings
from selftaught.training.automatic import Choice, automatic_workers, resolve
from selftaught.training.checkpoint import CHECKPOINT, load_checkpoint
from selftaught.training.interrupts import Interrupts
from selftaught.training.logbook import Logbook, signals_line
from selftaught.training.loop import Loop
from selftaught.training.measure import Measurements
from selftaught.training.prepare import SKIPPED, choose_backbone, make_fabric, readable_images
from selftaught.training.progress import Reporter

SETTINGS = "settings.json"


def train(
    images: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    recipe: str | None = None,
    backbone: str | nn.Module | None = None,
    preprocessing: Preprocessing | None = None,
    eval: str | os.PathLike[str] | None = None,  # noqa: A002, the option's name
    allow_skipped: bool = False,
    tensorboard: bool = False,
    quiet: bool = False,
    **changes: Any,
) -> Embedder:
    """Train an embedding model on a folder of images, without labels.

    Args:
        images: a folder of images, however nested; class folders are of no consequence.
        out: the run folder to write (model, settings, metrics, curves, checkpoint); it must be new or empty.
        resume: instead of both, a run folder to go on with; its settings stay as they are.
        recipe: "official" (default), "paper", "sop" or "scratch".
        backbone: "auto", "small", any timm name, or a module of your own that maps normalized images n×3×H×W to a
            feature map or a vector. Its weights count as pretrained, so its batch norm is frozen unless
            ``freeze_batch_norm=False``.
        preprocessing: what a module of your own expects of its input.
        eval: a folder of class folders to measure on after every epoch; never used for training.
        allow_skipped: train even if more than 5 % of the images cannot be read.
        tensorboard: also log to ``out/tensorboard``.
        quiet: print nothing.
        **changes: any setting of :class:`selftaught.recipes.Settings`: dim, epochs, batch_size, neighbors, lr,
            weights, seed, device, …

    Returns:
        The trained model, which is also saved in the run folder.

    Example:
        >>> model = train(getfixture("photos"), out=getfixture("tmp_path") / "run", backbone="small", dim=8,
        ...               epochs=1, batch_size=8, neighbors=2, quiet=True)
        >>> model.dim
        8
    """
    if not isinstance(backbone, (str, nn.Module, type(None))):
        raise UsageError(f"backbone must be a name or a module, but is {shown(backbone)}")
    own = backbone if isinstance(backbone, nn.Module) else None
    if isinstance(backbone, str):
        changes["backbone"] = backbone
    if resume is not None:
        others = (images, out, recipe, preprocessing, eval, allow_skipped or None, tensorboard or None)
        if any(other is not None for other in others) or set(changes) - {"device", "workers"}:
            raise UsageError("a resumed run keeps its images, folder and settings: leave them out beside --resume")
        run = Path(resume)
        saved = _read_settings(run)
        requested = changed(from_saved(saved["requested"]), changes)
        if own is not None and not saved["own_backbone"]:
            raise UsageError(f"{shown(run)} has a backbone by name: leave the module out")
    else:
        if images is None or out is None:
            raise UsageError("training needs a folder of images and an --out folder for the run, or --resume RUN")
        requested = settings(recipe or "official", **changes)
        run = Path(out)
        saved = {
            "images": os.path.abspath(images),  # noqa: PTH100, links in it stay as they are
            "eval": None if eval is None else os.path.abspath(eval),  # noqa: PTH100
            "own_backbone": None if own is None else type(own).__name__,
            "allow_skipped": allow_skipped,
            "tensorboard": tensorboard,
            "requested": asdict(requested),
        }
        choose_device(requested.device)
        find_images(images)
        if run.is_dir() and [entry.name for entry in run.iterdir()] == [SKIPPED]:  # of a try that failed
            (run / SKIPPED).unlink()
        again = f", or go on with it: --resume {shown(run)}" if (run / SETTINGS).is_file() else ""
        new_folder(run, "the run folder", f"give another --out{again}")
        _write_json(run / SETTINGS, saved)
    if own is None and saved["own_backbone"]:
        raise UsageError(f"{shown(run)} has a backbone of your own: resume it with train(resume=…, backbone=module)")
    reporter = Reporter(quiet)
    try:
        return _train(run, saved, requested, own, preprocessing, reporter)
    except BaseException as error:
        if not (run / CHECKPOINT).exists():
            if resume is None:  # nothing to go on with: the same command must be free to start again
                (run / SETTINGS).unlink(missing_ok=True)
            if isinstance(error, (Interrupted, KeyboardInterrupt)):
                raise Interrupted("stopped before training began: start it again with the same command") from None
        raise


def _train(
    run: Path,
    saved: dict[str, Any],
    requested: Settings,
    own: nn.Module | None,
    preprocessing: Preprocessing | None,
    reporter: Reporter,
) -> Embedder:
    remove_leftovers(run)
    device = choose_device(requested.device)
    torch.manual_seed(requested.seed)
    state = load_checkpoint(run)
    with Interrupts() as interrupts:
        workers = automatic_workers(requested).value
        images, labeled = readable_images(run, saved, state[1] if state else None, workers, reporter, interrupts)
        backbone = choose_backbone(saved, requested, own, preprocessing, begun=state is not None)
        chosen, choices = resolve(requested, len(images), backbone, device)
        _note(run, saved, chosen, choices, backbone, reporter, len(images))

        encoder = Encoder(backbone.module, backbone.preprocessing, bool(chosen.freeze_batch_norm))
        learner = STML(encoder, chosen)
        fabric = make_fabric(device, chosen.precision)
        inputs = backbone.preprocessing
        views = Views(inputs.size, inputs.resize, inputs.squash, chosen.crop_scale)
        reader = Reader(views, chosen.workers or 0, pin_memory=device.type == "cuda")
        try:
            measurements = Measurements(learner, fabric, reader, reporter, interrupts, chosen.seed, labeled)
            logbook = Logbook(run, saved["tensorboard"])
            loop = Loop(run, learner, images, chosen, fabric, reader, measurements, logbook, reporter, interrupts)
            if state is None:
                progress = loop.begin()
                reporter.say(f"before training: {signals_line(progress.start)}")
            else:
                content, progress = state
                loop.restore(content)
                reporter.say(f"resumed after epoch {progress.epoch} and step {progress.step} of the next")
            logbook.resume(progress)
            description = _describe(saved, backbone, chosen)
            try:
                loop.go(progress)
            except Collapse:
                good = load_checkpoint(run)
                assert good is not None
                loop.restore(good[0])
                _finished(learner, description).save(run)
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
    _write_json(run / SETTINGS, saved)
    reporter.say(f"{count} images in {shown(saved['images'])}")
    for choice in choices:
        reporter.say(f"  {choice}")


def _describe(saved: dict[str, Any], backbone: Backbone, chosen: Settings) -> dict[str, Any]:
    return describe(
        backbone=backbone.name,
        own_backbone=bool(saved["own_backbone"]),
        preprocessing=backbone.preprocessing,
        dim=chosen.dim,
        settings=asdict(chosen),
    )


def _finished(learner: STML, description: dict[str, Any]) -> Embedder:
    head = learner.network.heads["f"]
    assert isinstance(head, nn.Linear)
    return Embedder(EmbeddingNetwork(learner.network.encoder, {"f": head}), description)


def _read_settings(run: Path) -> dict[str, Any]:
    file = run / SETTINGS
    if not file.is_file():
        raise UsageError(f"there is no run to resume in {shown(run)}: start one with selftaught train PHOTOS --out RUN")
    try:
        saved: dict[str, Any] = json.loads(file.read_text("utf-8", "surrogateescape"))
        from_saved(saved["requested"])
        needed = {"images", "eval", "own_backbone", "allow_skipped", "tensorboard"}
        if (run / CHECKPOINT).exists():
            needed |= {"backbone", "pretrained"}
            Preprocessing(**saved["preprocessing"])
        if needed - set(saved):
            raise KeyError
    except (ValueError, KeyError, TypeError):
        raise SelftaughtError(
            f"{shown(file)} is damaged or from another version: the run must be started again"
        ) from None
    return saved


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=2) + "\n")
