"""From a folder of images to a run folder with a model."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from selftaught.console import Interrupts, Reporter
from selftaught.data import ReadersEnded, Skipped, absolute, check_skipped, skipped_table
from selftaught.devices import check_device, choose_device
from selftaught.embedder import Embedder
from selftaught.errors import Collapse, Interrupted, SelftaughtError, UsageError, counted, printable
from selftaught.files import lock_folder, remove_leftovers, write_atomically
from selftaught.learners import Learner, change_settings, make_settings, name_method
from selftaught.networks import Preprocessing, is_backbone
from selftaught.parallel import barrier, rank, run_on_first
from selftaught.run_folder import (
    FEATURES,
    SETTINGS,
    SKIPPED,
    SNAPSHOTS,
    SUPERVISED,
    Choice,
    RunRecord,
    create_run,
    has_begun,
    is_finished,
    read_record,
    write_record,
)
from selftaught.training.assemble import Context, Parts, assemble, find_start, prepare
from selftaught.training.checkpoint import Checkpoint, load_checkpoint
from selftaught.training.evaluation import Passes, Unreadable
from selftaught.training.images import advise_start, class_numbers, count_new, list_images
from selftaught.training.legs import CHANGES, begin_leg, describe_rates
from selftaught.training.logbook import signals_line
from selftaught.training.loop import Loop
from selftaught.training.model import find_exponent, has_floor, save_model
from selftaught.training.processes import ending, join_processes
from selftaught.training.semi_supervised import Stage, plan_stages
from selftaught.training.start import read_origin
from selftaught.training.things import look_for_things

ALLOW = "--allow-skipped"
Place = str | os.PathLike[str] | None


def train(
    images: Place = None,
    *,
    labeled: Place = None,
    unlabeled: Place = None,
    out: Place = None,
    resume: Place = None,
    from_run: Place = None,
    recipe: str | None = None,
    method: str | type[Learner] | None = None,
    backbone: str | nn.Module | None = None,
    preprocessing: Preprocessing | None = None,
    eval: Place = None,  # noqa: A002, the option's name
    level: str | None = None,
    labels: Place = None,
    allow_skipped: bool = False,
    tensorboard: bool = False,
    dry_run: bool = False,
    quiet: bool = False,
    **changes: Any,
) -> Embedder:
    """Train an embedding model on a folder of images, without labels.

    Args:
        images: a folder of images, with any subfolders; class folders do not matter unless the method needs labels.
            Or a data set of the paper, such as "cub:/data/CUB_200_2011": its training split.
        labeled, unlabeled: instead of ``images``, class folders and further images without labels. Training is then
            semi-supervised: first with the labels (multi-similarity loss), then with STML on all images.
        out: the run folder to write (model, settings, metrics, curves, checkpoint); it must be new or empty.
        resume: instead of these, a run folder to go on with; its settings stay as they are. With ``epochs``, and
            optionally ``lr``, it goes on to that epoch, even beyond its end, where the schedule begins again.
        from_run: start from the network of this run instead of a pretrained one, when photos were added: student and
            teacher both start as copies of it, with its heads where their sizes agree.
        recipe: "best" (default), "official" (default for other methods than STML), "paper", "sop", "scratch" or "semi"
            (default with ``labeled``).
        method: "stml" (default), another of :data:`selftaught.learners.METHODS`, one of another package, or a subclass
            of :class:`selftaught.learners.Learner` of your own.
        backbone: "auto", "small", "googlenet", "bn_inception", "torchvision.NAME", any timm name,
            "package.module:function", which is imported and returns a module, or a module of your own that maps
            normalized images n×3×H×W to a feature map or a vector. Its weights count as pretrained, so its batch norm
            is frozen unless ``freeze_batch_norm=False``. Parameters that require no gradient stay as they are.
        preprocessing: the input that a module of your own expects.
        eval: a folder of class folders to measure on after every epoch; never used for training. Or a data set of the
            paper: its test split.
        level, labels: the classes of ``eval``, as in :func:`selftaught.data.open_images`: which folders name them,
            "top" or "leaf", or a CSV file with the columns path and label.
        allow_skipped: train even if more than 5% of the images cannot be read.
        tensorboard: also log to ``out/tensorboard``.
        dry_run: only print what would be done, and how much time and memory it would take; nothing is written.
        quiet: print nothing.
        **changes: any setting of :class:`selftaught.recipes.Settings`: dim, epochs, batch_size, neighbors, lr, weights,
            seed, device, …; and the method's own settings, as in :class:`selftaught.learners.STMLSettings`.

    Returns:
        The trained model, which is also saved in the run folder. After a dry run, the model it would begin with.

    Example:
        >>> model = train(getfixture("photos"), out=getfixture("tmp_path") / "run", backbone="small", dim=8,
        ...               epochs=1, batch_size=8, neighbors=2, quiet=True)
        >>> model.dim
        8
    """
    if not isinstance(backbone, (str, nn.Module, type(None))):
        raise UsageError(f"backbone must be a name or a module, but is {printable(backbone)}")
    own = backbone if isinstance(backbone, nn.Module) else None
    if isinstance(backbone, str):
        changes["backbone"] = backbone
    if method is not None:
        name = name_method(method)
        if resume is None or isinstance(method, str):
            changes["method"] = name
    with Interrupts() as interrupts, ExitStack() as locked, _same_flags(own):
        with interrupts.at_once():
            join_processes()
            if resume is None:
                places = {"images": images, "labeled": labeled, "unlabeled": unlabeled, "eval": eval}
                origin = None if from_run is None else os.fspath(from_run)
                if origin and Path(origin).exists():  # otherwise it is a name on the model hub
                    origin = str(Path(origin).absolute())
                options: dict[str, Any] = {"from_run": origin}
                options |= {"eval_level": level, "eval_labels": None if labels is None else absolute(labels)}
                options |= {"allow_skipped": allow_skipped, "tensorboard": tensorboard, "preprocessing": preprocessing}
                begin = partial(_start, places, out, recipe, own, options, changes, None if dry_run else locked)
            else:
                others = (images, labeled, unlabeled, out, from_run, recipe, preprocessing, eval, level, labels)
                free = {"device", "workers"} | (CHANGES if "epochs" in changes else set())
                if tensorboard or any(other is not None for other in others) or set(changes) - free:
                    raise UsageError(
                        "a resumed run keeps its images, folder and settings: leave them out beside --resume, "
                        "except for --epochs, and --lr with it"
                    )
                begin = partial(_resume, Path(resume), own, allow_skipped, changes, None if dry_run else locked)
            run, stages = run_on_first(begin)
        overrides = {name: value for name, value in changes.items() if resume is not None and name not in CHANGES}
        context = Context(run, own, overrides, Reporter(quiet or rank() > 0), interrupts)
        if dry_run:
            return _foretell(stages, context)
        try:
            for stage in stages:
                interrupts.check()
                embedder = _train_stage(stage, context)
            barrier()  # no process may leave while another one still writes
            return embedder
        except BaseException as error:
            ended = ending(_explain(error, context, resume is not None), run, has_begun(run))
            if ended is error:
                raise
            raise ended from None


@contextmanager
def _same_flags(own: nn.Module | None) -> Iterator[None]:
    """Give a caller's module back with what it lets learn: a run may freeze its batch norm, or all of it."""
    before = [] if own is None else [(parameter, parameter.requires_grad) for parameter in own.parameters()]
    try:
        yield
    finally:
        for parameter, learns in before:
            parameter.requires_grad_(learns)


def _start(
    places: Mapping[str, Place],
    out: Place,
    recipe: str | None,
    own: nn.Module | None,
    options: Mapping[str, Any],
    changes: Mapping[str, Any],
    locked: ExitStack | None,
) -> tuple[Path, list[Stage]]:
    """A new run's folder and its stages. Every mistake in the request is found before anything is written.

    ``locked`` releases the folder's lock at its end; without it nothing is written.
    """
    labeled = places["labeled"]
    if (labeled is None) != (places["unlabeled"] is None) or (labeled is not None and places["images"] is not None):
        raise UsageError(
            "semi-supervised training needs both --labeled and --unlabeled, and no other folder of images beside them"
        )
    if (places["images"] is None and labeled is None) or out is None:
        raise UsageError("training needs a folder of images and an --out folder for the run, or --resume RUN")
    if places["eval"] is None and (options["eval_level"] or options["eval_labels"]):
        raise UsageError("--level and --labels say what the classes of the --eval images are: give --eval too")
    usual = "semi" if labeled is not None else "best" if changes.get("method", "stml") == "stml" else "official"
    requested = make_settings(recipe or usual, **changes)
    if labeled is None and requested.method == "slade":
        raise UsageError("the method 'slade' needs --labeled and --unlabeled images")
    if labeled is not None and requested.method not in ("stml", "slade"):
        raise UsageError(f"--labeled and --unlabeled are for the methods stml and slade, not for {requested.method!r}")
    if options["from_run"] is not None:
        requested = _start_from(options["from_run"], requested, labeled is not None, own)
    check_device(choose_device(requested.device))
    sources: dict[str, Any] = {name: None if place is None else absolute(place) for name, place in places.items()}
    name = None if own is None else type(own).__name__
    record = RunRecord(requested, own_backbone=name, **sources, **options)
    images = list_images(record)
    class_numbers(images.training, requested.method)
    if images.labeled is not None:
        class_numbers(images.labeled, "multi-similarity")
    run = Path(out)
    if locked is not None:
        locked.enter_context(create_run(run, record))
    return run, plan_stages(run, record, images, write=locked is not None)


def _start_from(run: str, requested: Any, semi: bool, own: nn.Module | None) -> Any:
    """The settings of a run that starts from the network of another run."""
    if semi:
        raise UsageError("--from is for a folder of images, not for --labeled and --unlabeled")
    if not Path(run).exists() and is_backbone(run):
        raise UsageError(f"{printable(run)} is a backbone's name: give it with --backbone")
    start = read_origin(run, own)
    if requested.backbone not in ("auto", start.backbone) or requested.weights != "auto":
        raise UsageError(
            f"the network of {printable(run)} has the backbone {printable(start.backbone)} and weights of its own: "
            "leave --backbone and --weights out beside --from"
        )
    requested = replace(requested, pooling=start.pooling)  # its heads have learned on features that are pooled so
    return requested if own is not None else replace(requested, backbone=start.backbone)


def _resume(
    run: Path, own: nn.Module | None, allow_skipped: bool, changes: Mapping[str, Any], locked: ExitStack | None
) -> tuple[Path, list[Stage]]:
    """The folder of a run to go on with, and the stages that are left of it."""
    record = read_record(run)
    if locked is not None:
        locked.enter_context(lock_folder(run))
    if not has_begun(run) and is_finished(run):
        raise UsageError(f"{printable(run)} is finished and has kept no checkpoint: there is nothing to resume")
    if own is not None and record.own_backbone is None:
        raise UsageError(f"{printable(run)} has a backbone by name: leave the module out")
    if own is None and record.own_backbone is not None:
        raise UsageError(
            f"{printable(run)} has a backbone of your own: resume it with train(resume=…, backbone=module)"
        )
    leg = {name: value for name, value in changes.items() if name in CHANGES}
    others = {name: value for name, value in changes.items() if name not in CHANGES}
    check_device(choose_device(change_settings(record.requested, others).device))
    record = replace(record, allow_skipped=record.allow_skipped or allow_skipped)
    images = list_images(record)
    if leg:
        record = begin_leg(run, record, leg)
        if locked is not None:
            write_record(run, record)
    return run, plan_stages(run, record, images, write=locked is not None)


def _foretell(stages: list[Stage], context: Context) -> Embedder:
    """Print what stages would do and take; returns the model that the last stage would start from."""
    for stage in stages:
        if stage.title:
            context.reporter.say(stage.title)
        checkpoint = load_checkpoint(stage.folder)
        images = stage.images if checkpoint is None else stage.images.only_of(checkpoint.state, context.run)
        start = find_start(stage, context.own) if checkpoint is None and stage.starts_from is None else None
        done = 0 if checkpoint is None else checkpoint.state.epoch
        prepared = prepare(stage, images, checkpoint is not None, context, start, done)
    context.reporter.say("nothing was written: the same command without --dry-run trains")
    known = context.run if checkpoint is not None else stage.record.from_run
    if known is not None:
        return Embedder.load(known, prepared.device, context.own)
    return Embedder.of_backbone(prepared.backbone, prepared.device, context.own is not None)


def _train_stage(stage: Stage, context: Context) -> Embedder:
    """Train a stage from its last checkpoint, or from its start."""
    if stage.title:
        context.reporter.say(stage.title)
    if rank() == 0:
        remove_leftovers(stage.folder)
    checkpoint = load_checkpoint(stage.folder)
    images = stage.images
    if checkpoint is not None:
        images = images.only_of(checkpoint.state, context.run)
        more = count_new(stage.images.training, checkpoint.state, stage.folder)
        if more:
            context.reporter.say(
                f"{counted(more, 'new image')} in {printable(images.training.root)}, without which the run goes on; "
                f"a new run that learns from all and begins with its network: {advise_start(context.run)}"
            )
    skipped: list[Skipped] = []
    passes: Passes = {}
    neighbors: Choice | None = None
    while True:
        try:
            with assemble(stage, images, checkpoint is not None, context, passes, neighbors) as parts:
                if neighbors is None and checkpoint is None and stage.record.requested.neighbors is None:
                    neighbors = look_for_things(parts)
                    if neighbors.value != parts.settings.neighbors:
                        continue  # once more: much depends on it, and the pass over the images is kept
                return _train_parts(parts, checkpoint)
        except Unreadable as error:  # found in the first pass over all images: start again without them
            if checkpoint is not None:
                raise
            skipped += error.skipped
            file = stage.folder / SKIPPED
            if rank() == 0:
                write_atomically(file, skipped_table(skipped))
            left_out = counted(len(error.skipped), "image")
            context.reporter.say(f"left out {left_out} that cannot be read: {printable(file)}")
            check_skipped(error.images, error.skipped, allow=stage.record.allow_skipped)
            images = images.without(error.images, error.skipped)


def _train_parts(parts: Parts, checkpoint: Checkpoint | None) -> Embedder:
    """Run the loop to its end, and save the model."""
    say, loop = parts.context.reporter.say, Loop(parts)
    if checkpoint is None:
        state = loop.begin()
        say(f"before training: {signals_line(state.start)}")
    else:
        state = loop.restore(checkpoint)
        parts.evaluation.exponent = find_exponent(parts)
        if checkpoint.passed_over is not None:
            say(f"{printable(checkpoint.passed_over)} is damaged: going on from an earlier state")
        say(f"resumed after epoch {state.epoch}" + (f" and step {state.step} of the next" if state.step else ""))
        if state.epoch == loop.epochs:
            say("all epochs are done: --epochs with a larger number goes on")
        else:
            say(describe_rates(parts.settings, parts.record.leg, state.epoch))
            if 0 < state.epoch == parts.record.leg and not state.step:
                loop.begin_leg(state)
    parts.evaluation.passes = None
    if parts.reader.note:
        say(parts.reader.note)
    parts.logbook.resume(state)
    try:
        loop.go(state)
    except Collapse:
        good = load_checkpoint(parts.folder)
        assert good is not None
        loop.restore(good)
        save_model(parts, finished=False)
        raise
    finally:
        parts.logbook.close(state)
    embedder = save_model(parts)
    if rank() == 0:  # not needed after training, and they can be larger than the images
        shutil.rmtree(parts.folder / FEATURES, ignore_errors=True)
    if not has_floor(parts):  # otherwise the verdict has already said it
        last = state.history[-1] if state.history else state.start
        gained = f" (before training {state.start['recall@1']:.1%})" if "recall@1" in last else ""
        say(f"the model is in {printable(parts.folder)}; after its last epoch: {signals_line(last)}{gained}")
    return embedder


def _explain(error: BaseException, context: Context, resumed: bool) -> BaseException:
    """An error that also says what to do; a run that has not begun is removed."""
    run, begun = context.run, has_begun(context.run)
    if rank() == 0 and not begun and not resumed:  # so that the same command can start again
        for part in (SUPERVISED, SNAPSHOTS):
            shutil.rmtree(run / part, ignore_errors=True)
        (run / SETTINGS).unlink(missing_ok=True)
    go_on = f"go on with: {context.command}" if begun or resumed else "start it again with the same command"
    if isinstance(error, (Interrupted, KeyboardInterrupt)) and context.command not in str(error):
        return Interrupted(f"stopped; {go_on}" if begun else f"stopped before training began: {go_on}")
    if isinstance(error, ReadersEnded):
        return SelftaughtError(f"{error}; then {go_on}")
    if isinstance(error, SelftaughtError) and ALLOW in str(error) and begun:
        return SelftaughtError(f"{error}: {context.command} {ALLOW}")
    return error
