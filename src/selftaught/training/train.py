"""From a folder of images to a run folder with a model."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from selftaught.console import Interrupts, Reporter
from selftaught.data import ReadersEnded, absolute
from selftaught.embedder import Embedder
from selftaught.errors import Interrupted, SelftaughtError, UsageError, printable
from selftaught.files import delete
from selftaught.learners import Learner, make_settings, name_method
from selftaught.networks import Preprocessing
from selftaught.parallel import barrier, rank, run_on_first
from selftaught.run_folder import SETTINGS, SNAPSHOTS, SUPERVISED, RunRecord, has_begun
from selftaught.training.assemble import Context
from selftaught.training.images import RunImages
from selftaught.training.legs import CHANGES
from selftaught.training.processes import ending, join_processes
from selftaught.training.run_stages import resume_run, start_run
from selftaught.training.semi_supervised import Stage
from selftaught.training.stage import foretell, train_stage

Place = str | os.PathLike[str] | None
ALLOW = "--allow-skipped"


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
    at_end: Callable[[Path, RunImages], object] | None = None,
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
        at_end: called with the run folder and the images of the run, as they were listed, when the model is saved; of
            several processes, only the first calls it. The command line makes its page there.
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
    if from_run is not None and os.fspath(from_run) and Path(from_run).exists():  # else it is a name on the model hub
        from_run = Path(from_run).absolute()
    if method is not None:
        name = name_method(method)
        if resume is None or isinstance(method, str):
            changes["method"] = name
    with Interrupts() as interrupts, ExitStack() as locked, _same_flags(own):
        with interrupts.at_once():
            join_processes()
            run, lock = Path((out if resume is None else resume) or ""), None if dry_run else locked
            overrides = {name: changes[name] for name in changes if resume is not None and name not in CHANGES}
            context = Context(run, own, overrides, Reporter(quiet or rank() > 0), interrupts)

            def start() -> list[Stage]:
                if out in (None, "") or (images is None and labeled is None and unlabeled is None):
                    raise UsageError(
                        "training needs a folder of images and an --out folder for the run, or --resume RUN"
                    )
                plain = "best" if changes.get("method", "stml") == "stml" else "official"
                record = RunRecord(
                    requested=make_settings(recipe or (plain if labeled is None else "semi"), **changes),
                    images=_full(images),
                    labeled=_full(labeled),
                    unlabeled=_full(unlabeled),
                    eval=_full(eval),
                    eval_level=level,
                    eval_labels=_full(labels),
                    own_backbone=None if own is None else type(own).__name__,
                    preprocessing=preprocessing,
                    from_run=None if from_run is None else os.fspath(from_run),
                    allow_skipped=allow_skipped,
                    tensorboard=tensorboard,
                )
                return start_run(record, context, lock)

            def go_on() -> list[Stage]:
                others = (images, labeled, unlabeled, out, from_run, recipe, preprocessing, eval, level, labels)
                free = {"device", "workers"} | (CHANGES if "epochs" in changes else set())
                if tensorboard or any(other is not None for other in others) or set(changes) - free:
                    raise UsageError(
                        "a resumed run keeps its images, folder and settings: leave them out beside --resume, "
                        "except for --epochs, and --lr with it"
                    )
                return resume_run(context, allow_skipped, changes, lock)

            stages = run_on_first(start if resume is None else go_on)
        if dry_run:
            return foretell(stages, context)
        try:
            for stage in stages:
                interrupts.check()
                embedder = train_stage(stage, context)
            barrier()  # no process may leave while another one still writes
        except BaseException as error:
            ended = ending(_explain(error, context, resume is not None), context.go_on(has_begun(run)))
            if ended is error:
                raise
            raise ended from None
    if at_end is not None and rank() == 0:
        at_end(run, stages[-1].images)
    return embedder


def _explain(error: BaseException, context: Context, resumed: bool) -> BaseException:
    """An error that also says what to do; a run that has not begun is removed."""
    run, begun = context.run, has_begun(context.run)
    if rank() == 0 and not begun and not resumed:  # so that the same command can start again
        for part in (SUPERVISED, SNAPSHOTS):
            delete(run / part)
        (run / SETTINGS).unlink(missing_ok=True)
    go_on = context.go_on(begun or resumed)
    if isinstance(error, (Interrupted, KeyboardInterrupt)) and context.command not in str(error):
        return Interrupted(f"stopped; {go_on}" if begun else f"stopped before training began: {go_on}")
    if isinstance(error, ReadersEnded):
        return SelftaughtError(f"{error}; then {go_on}")
    if isinstance(error, SelftaughtError) and ALLOW in str(error) and begun:
        return SelftaughtError(f"{error}: {context.command} {ALLOW}")
    return error


def _full(place: Place) -> str | None:
    return None if place is None else absolute(place)


@contextmanager
def _same_flags(own: nn.Module | None) -> Iterator[None]:
    """Give a caller's module back with what it lets learn: a run may freeze its batch norm, or all of it."""
    before = [] if own is None else [(parameter, parameter.requires_grad) for parameter in own.parameters()]
    try:
        yield
    finally:
        for parameter, learns in before:
            parameter.requires_grad_(learns)
