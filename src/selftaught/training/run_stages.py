"""A run that is started or resumed: its folder and its stages, checked before anything is written."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from selftaught.devices import check_device, choose_device
from selftaught.errors import UsageError, printable
from selftaught.files import lock_folder
from selftaught.learners import change_settings
from selftaught.networks import is_backbone
from selftaught.recipes import Settings
from selftaught.run_folder import (
    RunRecord,
    check_new_run,
    create_run,
    has_begun,
    is_finished,
    read_record,
    write_record,
)
from selftaught.training.assemble import Context
from selftaught.training.images import class_numbers, list_images
from selftaught.training.legs import CHANGES, begin_leg
from selftaught.training.semi_supervised import Stage, plan_stages


def start_run(record: RunRecord, context: Context, locked: ExitStack | None) -> list[Stage]:
    """The stages of a new run, in a new folder. Every mistake in the request is found before anything is written.

    ``locked`` releases the folder's lock at its end; without it nothing is written.
    """
    semi, method = record.labeled is not None, record.requested.method
    if not semi and method == "slade":
        raise UsageError("the method 'slade' needs --labeled and --unlabeled images")
    if semi and method not in ("stml", "slade"):
        raise UsageError(f"--labeled and --unlabeled are for the methods stml and slade, not for {method!r}")
    if record.from_run is not None:
        record = replace(record, requested=_start_from(record.from_run, record.requested, semi, context))
    check_device(choose_device(record.requested.device))
    images = list_images(record)
    class_numbers(images.training, method)
    if images.labeled is not None:
        class_numbers(images.labeled, "multi-similarity")
    if locked is not None:
        locked.enter_context(create_run(context.run, record))
    else:
        check_new_run(context.run)
    return plan_stages(context.run, record, images, write=locked is not None)


def resume_run(
    context: Context, allow_skipped: bool, changes: Mapping[str, Any], locked: ExitStack | None
) -> list[Stage]:
    """The stages that are left of a run that is resumed."""
    run, own = context.run, context.own
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
    check_device(choose_device(change_settings(record.requested, context.overrides).device))
    record = replace(record, allow_skipped=record.allow_skipped or allow_skipped)
    images = list_images(record)
    if leg:
        record = begin_leg(run, record, leg)
        if locked is not None:
            write_record(run, record)
    return plan_stages(run, record, images, write=locked is not None)


def _start_from(run: str, requested: Settings, semi: bool, context: Context) -> Settings:
    """The settings of a run that starts from the network of another run."""
    if semi:
        raise UsageError("--from is for a folder of images, not for --labeled and --unlabeled")
    if not Path(run).exists() and is_backbone(run):
        raise UsageError(f"{printable(run)} is a backbone's name: give it with --backbone")
    start, _ = context.origin(run)
    if requested.backbone not in ("auto", start.backbone) or requested.weights != "auto":
        raise UsageError(
            f"the network of {printable(run)} has the backbone {printable(start.backbone)} and weights of its own: "
            "leave --backbone and --weights out beside --from"
        )
    requested = replace(requested, pooling=start.pooling)  # its heads have learned on features that are pooled so
    return requested if context.own is not None else replace(requested, backbone=start.backbone)
