"""From a table to jobs, one for each row, data set and seed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from selftaught.data import benchmark_of, check_benchmark, find_benchmark
from selftaught.errors import SelftaughtError
from selftaught.learners import make_settings
from selftaught.reproduce.folders import State, find_state, run_folder
from selftaught.reproduce.inputs import (
    benchmark_source,
    check_packages,
    count_images,
    image_sources,
    needed_benchmarks,
    weights_for,
)
from selftaught.reproduce.quick import EMBEDDED
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
        data = "drawn photos" if self.dataset == EMBEDDED else self.dataset
        return f"{self.row.name}: {self.row.label}{arch} on {data}, seed {self.seed}"

    @property
    def state(self) -> State:
        """The state of its run; what has no result yet cannot be run while something is missing."""
        state = find_state(self.folder)
        if self.missing and state.status != "finished" and not state.final:
            return State("cannot be run", "; ".join(self.missing))
        return state

    @property
    def open(self) -> bool:
        """Whether it can be run and there is something left to do."""
        state = self.state
        return state.status in ("to run", "begun", "failed") and not state.final


def make_jobs(request: Request) -> list[Job]:
    """All jobs of a request, in the order of the table; those that cannot be run say why."""
    return [_job(request, row, dataset, seed) for row, dataset in request.cases for seed in range(request.seeds)]


def _job(request: Request, row: Row, dataset: str, seed: int) -> Job:
    settings = request.settings(row, dataset)
    whole = make_settings(**settings)
    missing: list[str] = []
    work = 0
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
            work = whole.epochs * sum(counts.values()) + whole.supervised_epochs * counts.get("labeled", 0)
    folder = run_folder(request.out, row.name, dataset, seed)
    return Job(row, dataset, seed, folder, {**settings, "seed": seed}, whole.backbone, work, tuple(missing))


def incomplete_data(jobs: Sequence[Job], data: Path) -> list[str]:
    """A sentence for each of the paper's data sets that was used and does not have the official counts."""
    used = sorted({name for job in jobs if not job.missing for name in needed_benchmarks(job.row.uses, job.dataset)})
    return [
        f"{benchmark_of(name).title} is not complete, so its numbers cannot be compared: selftaught data check {name}"
        for name in used
        if _differs(name, data)
    ]


@cache
def _differs(name: str, data: Path) -> bool:
    root = find_benchmark(name, data)
    return root is not None and any(check.differs for check in check_benchmark(name, root)[1])


@contextmanager
def _note_errors(missing: list[str]) -> Iterator[None]:
    try:
        yield
    except SelftaughtError as error:
        missing.append(str(error))
