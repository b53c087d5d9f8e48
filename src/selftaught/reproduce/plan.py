"""From a table to jobs: one for each row, data set and seed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selftaught.errors import SelftaughtError
from selftaught.learners import make_settings
from selftaught.recipes import Settings
from selftaught.reproduce.folders import failure, run_folder, status
from selftaught.reproduce.inputs import (
    benchmark_source,
    check_packages,
    count_images,
    image_sources,
    needed_benchmarks,
    weights_for,
)
from selftaught.reproduce.request import Request
from selftaught.reproduce.table import Row


@dataclass(frozen=True)
class Job:
    """One training run."""

    row: Row
    dataset: str
    seed: int
    folder: Path
    arguments: Mapping[str, Any]
    """The arguments of :func:`selftaught.training.train`, without the folder and the device."""
    backbone: str
    work: int = 0
    """Images times epochs."""
    missing: tuple[str, ...] = ()
    """The reasons why it cannot be run, each as a sentence."""

    @property
    def title(self) -> str:
        arch = f" {self.row.arch}" if self.row.arch else ""
        return f"{self.row.label}{arch} on {self.dataset}, seed {self.seed}"

    @property
    def open(self) -> bool:
        """Whether it can be run and there is something left to do."""
        final = status(self.folder) == "failed" and failure(self.folder)[1]
        return not self.missing and not final and status(self.folder) != "finished"


def make_jobs(request: Request) -> list[Job]:
    """All jobs of a request, in the order of the table; those that cannot be run say why."""
    return [
        _job(request, row, dataset, seed)
        for row in request.rows
        for dataset in request.table.datasets(row)
        for seed in range(request.seeds)
    ]


def _job(request: Request, row: Row, dataset: str, seed: int) -> Job:
    settings = request.settings(row, dataset)
    whole = make_settings(**settings)
    missing: list[str] = []
    counts: dict[str, int] = {}
    with _note_errors(missing):
        check_packages(row)
    with _note_errors(missing):
        if request.quick is None:
            settings["weights"] = weights_for(row, whole.backbone, request.data)
    for name in needed_benchmarks(row.uses, dataset):
        with _note_errors(missing):
            benchmark_source(name, request.data)
    if not missing:
        with _note_errors(missing):
            settings |= image_sources(row.uses, dataset, request.data, request.out, row.share)
            counts = count_images(settings) if request.quick is None else request.quick.counts(row.uses, row.share)
    folder = run_folder(request.out, row.name, dataset, seed)
    work = 0 if missing else _work(whole, counts)
    return Job(row, dataset, seed, folder, {**settings, "seed": seed}, whole.backbone, work, tuple(missing))


@contextmanager
def _note_errors(missing: list[str]) -> Iterator[None]:
    try:
        yield
    except SelftaughtError as error:
        missing.append(str(error))


def _work(settings: Settings, counts: Mapping[str, int]) -> int:
    assert settings.epochs is not None
    if "labeled" not in counts:
        return settings.epochs * counts["images"]
    both = counts["labeled"] + counts["unlabeled"]
    return settings.supervised_epochs * counts["labeled"] + settings.epochs * both
