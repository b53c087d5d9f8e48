"""A run that is started or gone on with: its folder and its stages, checked before anything is written."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from selftaught.data import absolute
from selftaught.devices import check_device, choose_device
from selftaught.errors import UsageError, printable
from selftaught.files import lock_folder
from selftaught.learners import change_settings, make_settings
from selftaught.networks import is_backbone
from selftaught.run_folder import RunRecord, create_run, has_begun, is_finished, read_record, write_record
from selftaught.training.images import class_numbers, list_images
from selftaught.training.legs import CHANGES, begin_leg
from selftaught.training.semi_supervised import Stage, plan_stages
from selftaught.training.start import read_origin

Place = str | PathLike[str] | None


def start_run(
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
    if (places["images"] is None and labeled is None) or out in (None, ""):
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


def resume_run(
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
