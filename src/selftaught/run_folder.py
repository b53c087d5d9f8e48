"""A run's folder: its files by name, and its record, which says what the run is made of."""

import csv
import io
import json
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from selftaught.errors import SelftaughtError, UsageError, one_line, printable
from selftaught.files import claim_folder, new_folder, read_file, read_json, remove_leftovers, write_json
from selftaught.learners import load_settings
from selftaught.model_files import DESCRIPTION
from selftaught.networks import Preprocessing
from selftaught.recipes import Settings

SETTINGS = "settings.json"
"""The record."""
CHECKPOINT = "checkpoint.pt"
"""The state at the end of the last good epoch."""
PARTIAL = "partial.pt"
"""A later state in the middle of an epoch, if there is one."""
METRICS, START, TIMING, CURVES = "metrics.jsonl", "start.json", "timing.jsonl", "curves.png"
SKIPPED = "skipped.csv"
"""Images that cannot be read."""
FEATURES = "features"
"""Features of a backbone that does not learn, until the run is finished."""
SNAPSHOTS = "snapshots"
MODELS = "models.json"
"""Measurements of the trained model and of the untrained ones."""
FLOOR, TRAINED = "floor", "trained"
"""Folders of the best untrained model, and of the trained one where the untrained is served."""
REPORT = "report.html"
SUPERVISED = "supervised"
"""The run folder of the first stage of a semi-supervised run."""
ALIKE = ({(True, False, False)}, {(True, True, True)})
"""Which measurements the models of a run can have: all of them the same."""
CHOSEN = ("epochs", "batch_size", "neighbors", "lr", "pooling", "momentum", "clusters")
"""Settings that are never open once a run has chosen, if its method has them."""


@dataclass(frozen=True)
class Choice:
    """An automatic value, and the reason for it."""

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.name.replace('_', ' ')} {self.value}: {self.reason}"


@dataclass(frozen=True)
class RunRecord:
    """Everything that defines a run: what was asked for and, once it is known, what was chosen."""

    requested: Settings
    images: str | None
    labeled: str | None
    unlabeled: str | None
    """Where the images come from: ``images``, or both others for semi-supervised training."""
    eval: str | None
    own_backbone: str | None
    """The class of a caller's own module."""
    allow_skipped: bool
    tensorboard: bool
    preprocessing: Preprocessing | None = None
    """As given by the caller, or as chosen once that is known."""
    backbone: str | None = None
    pretrained: bool | None = None
    settings: Settings | None = None
    """With nothing left open."""
    choices: tuple[Choice, ...] = ()
    eval_level: str | None = None
    eval_labels: str | None = None
    """Which folders, or which table, name the classes of the images to measure on."""
    from_run: str | None = None
    """The run whose network this one began with."""
    leg: int = 0
    """The number of epochs after which the schedule began again, if the run went on beyond its end."""

    def __post_init__(self) -> None:
        for name, kind in typing.get_type_hints(RunRecord).items():
            if name != "choices" and not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} is {getattr(self, name)!r}")
        if not 0 <= self.leg <= (self.leg if self.requested.epochs is None else self.requested.epochs):
            raise ValueError(f"leg is {self.leg}")
        if any(getattr(self.settings, name, 0) is None for name in CHOSEN):
            raise ValueError("its settings lack a choice")
        if not (self.images is None) == (self.labeled is not None) == (self.unlabeled is not None):
            raise UsageError(
                "semi-supervised training needs both --labeled and --unlabeled, and no other folder of images beside "
                "them"
            )
        if self.eval is None and (self.eval_level or self.eval_labels):
            raise UsageError("--level and --labels say what the classes of the --eval images are: give --eval too")

    @property
    def sources(self) -> tuple[str, ...]:
        """The places that training images come from."""
        return tuple(source for source in (self.images, self.labeled, self.unlabeled) if source is not None)


@contextmanager
def create_run(run: Path, record: RunRecord) -> Iterator[None]:
    """Begin a run in a folder that is empty, or holds only what a failed start has left; locked within this context.

    A folder that is made here is removed at the end if it is still empty.
    """
    with claim_folder(run, *_as_run_folder(run)):
        (run / SKIPPED).unlink(missing_ok=True)
        remove_leftovers(run)
        write_record(run, record)
        yield


def check_new_run(run: Path) -> None:
    """Raise an error if no run can begin in a folder; nothing is written."""
    if run.exists():
        new_folder(run, *_as_run_folder(run))


def _as_run_folder(run: Path) -> tuple[str, str, tuple[str, ...]]:
    """Its name in errors, what to do if it holds something, and which files of a failed start do not count."""
    again = f", or go on with it: --resume {printable(run)}" if (run / SETTINGS).is_file() else ""
    return "the run folder", f"give another --out{again}", (SKIPPED,)


def write_record(run: Path, record: RunRecord) -> None:
    """Write a record with each setting once: as chosen; beside it the requests that differ, and the reasons."""
    content = asdict(record)
    asked, chosen = content.pop("requested"), content["settings"]
    content["asked"] = {name: value for name, value in asked.items() if chosen is None or chosen[name] != value}
    content["reasons"] = {choice["name"]: choice["reason"] for choice in content.pop("choices")}
    del content["backbone"]
    write_json(run / SETTINGS, content)


def read_record(run: Path) -> RunRecord:
    """The record of a run; raises an error that says which of its values is wrong."""
    file = run / SETTINGS
    if not file.exists():
        raise UsageError(
            f"there is no run to resume in {printable(run)}: start one with selftaught train PHOTOS --out RUN"
        )
    text = read_file(file).decode("utf-8", "surrogateescape")
    try:
        saved = json.loads(text)
        record = _read_content(saved)
        if (run / CHECKPOINT).exists() and None in (record.backbone, record.preprocessing, record.pretrained):
            raise ValueError("it does not name the backbone of the checkpoint")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        why = printable(one_line(error))
        raise SelftaughtError(
            f"{printable(file)} is damaged or from another version ({why}): the run must be started again"
        ) from None
    return record


def is_finished(run: Path) -> bool:
    """Whether a run has reached its end; a collapsed run has a model too, but an unfinished one."""
    description = read_json(run / DESCRIPTION)
    return description is not None and bool(description.get("finished", True))


def read_models(run: Path) -> dict[str, Any] | None:
    """Measurements of a run's models; None if there are none, or the file is damaged."""
    models = read_json(run / MODELS) or {}
    try:
        rows = models["models"]
        kinds = {("found_again" in row, "recall@1" in row, "map@r" in row) for row in rows.values()}
        shares = all(0 <= value <= 1 for row in rows.values() for value in row.values())
        if models["floor"] not in rows.keys() - {"trained"} or not shares or kinds not in ALIKE:
            return None
        models["exponent"] = min(1.0, max(0.0, float(models.get("exponent", 0.5))))
        models["alike"] = models.get("alike") is not False
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError):
        return None
    return models


def read_skipped(run: Path) -> set[str]:
    """The images that a run has left out, as they cannot be read; none if their list is missing or damaged."""
    with suppress(SelftaughtError, KeyError, csv.Error):
        text = read_file(run / SKIPPED).decode("utf-8", "surrogateescape")
        return {row["path"] for row in csv.DictReader(io.StringIO(text, newline=""))}
    return set()


def has_begun(run: Path) -> bool:
    """Whether either stage has something to resume."""
    return any((folder / name).exists() for folder in (run, run / SUPERVISED) for name in (CHECKPOINT, FEATURES))


def _read_content(saved: Mapping[str, Any]) -> RunRecord:
    if "requested" in saved:  # the format before each setting was held once
        reasons = {choice["name"]: choice["reason"] for choice in saved["choices"]}
        saved = {**saved, "asked": saved["requested"], "reasons": reasons}
    known = {field.name for field in fields(RunRecord)} - {"requested", "choices", "backbone"}
    values = {name: value for name, value in saved.items() if name in known}
    chosen, asked, inputs = saved["settings"], saved["asked"], saved["preprocessing"]
    if not isinstance(chosen, Mapping | None) or not isinstance(asked, Mapping):
        raise ValueError(f"the settings are {chosen!r} and {asked!r}")
    settings = None if chosen is None else load_settings(chosen)
    values["preprocessing"] = preprocessing = None if inputs is None else Preprocessing(**inputs)
    seen = vars(settings) | {"crop": preprocessing and preprocessing.size} if settings else {}
    return RunRecord(
        load_settings({**(chosen or {}), **asked}),
        **values | {"settings": settings},
        choices=tuple(Choice(name, seen.get(name), str(reason)) for name, reason in saved["reasons"].items()),
        backbone=None if settings is None else settings.backbone,
    )
