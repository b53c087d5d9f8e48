"""From a folder of images to a run folder with a model."""

import os
import shlex
import shutil
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from selftaught.allocator import reuse_memory
from selftaught.data import absolute
from selftaught.embedder import Embedder, choose_device
from selftaught.errors import Interrupted, SelftaughtError, UsageError, printable
from selftaught.files import alone_in
from selftaught.learners import Learner, change_settings, load_settings, name_method
from selftaught.networks import Preprocessing
from selftaught.parallel import barrier, first_decides, rank
from selftaught.recipes import Settings
from selftaught.training.interrupts import Interrupts
from selftaught.training.new import new_run
from selftaught.training.processes import RESUME, check_device, ending, join_processes
from selftaught.training.progress import Reporter
from selftaught.training.saved import SETTINGS, finished, read_settings, write_settings
from selftaught.training.semi import SUPERVISED, begun, first_stage
from selftaught.training.snapshots import SNAPSHOTS
from selftaught.training.stage import train_stage

ALLOW = "--allow-skipped"


def train(
    images: str | os.PathLike[str] | None = None,
    *,
    labeled: str | os.PathLike[str] | None = None,
    unlabeled: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    recipe: str | None = None,
    method: str | type[Learner] | None = None,
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
        images: a folder of images, however nested; class folders are of no consequence, unless the method needs
            labels. Or a data set of the paper, such as "cub:/data/CUB_200_2011": its training split.
        labeled, unlabeled: instead of ``images``, class folders and further images without labels. Training is then
            semi-supervised: first with the labels (multi-similarity loss), then with STML on all images.
        out: the run folder to write (model, settings, metrics, curves, checkpoint); it must be new or empty.
        resume: instead of these, a run folder to go on with; its settings stay as they are.
        recipe: "official" (default), "paper", "sop", "scratch" or "semi" (default with ``labeled``).
        method: "stml" (default), another of :data:`selftaught.learners.METHODS`, one of another package, or a subclass
            of :class:`selftaught.learners.Learner` of your own.
        backbone: "auto", "small", "googlenet", "bn_inception", "torchvision.NAME", any timm name, or a module of your
            own that maps normalized images n×3×H×W to a feature map or a vector. Its weights count as pretrained, so
            its batch norm is frozen unless ``freeze_batch_norm=False``.
        preprocessing: what a module of your own expects of its input.
        eval: a folder of class folders to measure on after every epoch; never used for training. Or a data set of the
            paper: its test split.
        allow_skipped: train even if more than 5 % of the images cannot be read.
        tensorboard: also log to ``out/tensorboard``.
        quiet: print nothing.
        **changes: any setting of :class:`selftaught.recipes.Settings`: dim, epochs, batch_size, neighbors, lr, weights,
            seed, device, …; and of the method's own, as in :class:`selftaught.learners.STMLSettings`.

    Returns:
        The trained model, which is also saved in the run folder.

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
    reuse_memory()
    join_processes()
    begin = partial(_begin, images, labeled, unlabeled, out, resume, recipe, own, preprocessing, eval)
    run, saved, requested = first_decides(partial(begin, allow_skipped, tensorboard, changes))
    reporter = Reporter(quiet or rank() > 0)
    try:
        with alone_in(run) if rank() == 0 else nullcontext(), Interrupts() as interrupts:
            if saved["labeled"] is not None:
                stage = first_decides(partial(first_stage, run, saved, requested))
                if stage is not None:
                    reporter.say("stage 1 of 2: learning from the labels")
                    train_stage(*stage, own, preprocessing, reporter, interrupts, resumed_as=run)
                    interrupts.check()
                reporter.say("stage 2 of 2: learning from all images, starting from there")
            embedder = train_stage(run, saved, requested, own, preprocessing, reporter, interrupts)
            barrier()  # while one still writes, none may leave
            return embedder
    except BaseException as error:
        ended = ending(_explained(error, run, resumed=resume is not None), run, begun(run))
        if ended is error:
            raise
        raise ended from None


def _begin(
    images: str | os.PathLike[str] | None,
    labeled: str | os.PathLike[str] | None,
    unlabeled: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
    resume: str | os.PathLike[str] | None,
    recipe: str | None,
    own: nn.Module | None,
    preprocessing: Preprocessing | None,
    eval: str | os.PathLike[str] | None,  # noqa: A002, the option's name
    allow_skipped: bool,
    tensorboard: bool,
    changes: dict[str, Any],
) -> tuple[Path, dict[str, Any], Settings]:
    """The run's folder, what is saved of it, and its settings: of a new run, which is made, or of one to go on with."""
    if resume is not None:
        others = (images, labeled, unlabeled, out, recipe, preprocessing, eval)
        if any(other is not None for other in (*others, tensorboard or None)) or set(changes) - {"device", "workers"}:
            raise UsageError("a resumed run keeps its images, folder and settings: leave them out beside --resume")
        run = Path(resume)
        saved = read_settings(run)
        saved["allow_skipped"] |= allow_skipped
        if not begun(run) and finished(run):
            raise UsageError(f"{printable(run)} is finished and has kept no checkpoint: there is nothing to resume")
        requested = change_settings(load_settings(saved["requested"]), changes)
        if own is not None and not saved["own_backbone"]:
            raise UsageError(f"{printable(run)} has a backbone by name: leave the module out")
        check_device(choose_device(requested.device))
    else:
        run, saved, requested = new_run(images, labeled, unlabeled, out, recipe, changes)
        saved |= {
            "eval": None if eval is None else absolute(eval),
            "own_backbone": None if own is None else type(own).__name__,
            "allow_skipped": allow_skipped,
            "tensorboard": tensorboard,
            "preprocessing": None if preprocessing is None else asdict(preprocessing),
        }
        write_settings(run, saved)
    if own is None and saved["own_backbone"]:
        raise UsageError(
            f"{printable(run)} has a backbone of your own: resume it with train(resume=…, backbone=module)"
        )
    return run, saved, requested


def _explained(error: BaseException, run: Path, resumed: bool) -> BaseException:
    """An error with what to do now; a run that has not begun is taken back."""
    if rank() == 0 and not begun(run) and not resumed:  # the same command must be free to start again
        for part in (SUPERVISED, SNAPSHOTS):
            shutil.rmtree(run / part, ignore_errors=True)
        (run / SETTINGS).unlink(missing_ok=True)
    if isinstance(error, (Interrupted, KeyboardInterrupt)) and RESUME not in str(error):
        if begun(run):
            return Interrupted(f"stopped; go on with: {RESUME} {shlex.quote(printable(run))}")
        return Interrupted("stopped before training began: start it again with the same command")
    if isinstance(error, SelftaughtError) and ALLOW in str(error) and begun(run):
        return SelftaughtError(f"{error}: {RESUME} {shlex.quote(printable(run))} {ALLOW}")
    return error
