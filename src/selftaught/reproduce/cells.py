"""The cells of a table, from its run folders: last epoch and best epoch, over seeds, beside the paper's number."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from selftaught.errors import SelftaughtError
from selftaught.reproduce.folders import RunScores, find_state, read_scores, run_folder
from selftaught.reproduce.request import Request
from selftaught.reproduce.table import Row


@dataclass(frozen=True)
class Cell:
    """One score of one row on one data set, in percent, by seed."""

    last: Mapping[int, float]
    best: Mapping[int, float]
    """The score in the epoch with the best Recall@1 on the test images."""
    paper: float | None = None
    failed: bool = False
    seeds: int = 1
    """The number of seeds asked for; some may be missing."""

    @property
    def mean(self) -> float | None:
        return statistics.mean(self.last.values()) if self.last else None

    @property
    def deviation(self) -> float | None:
        """The sample deviation; None with fewer than two seeds."""
        return statistics.stdev(self.last.values()) if len(self.last) > 1 else None

    @property
    def best_mean(self) -> float | None:
        return statistics.mean(self.best.values()) if self.best else None


Cells = dict[str, dict[str, dict[str, Cell]]]
"""By row, data set and score."""


def collect(request: Request) -> Cells:
    """The scores of all finished runs in the output folder, including those of earlier commands."""
    cells: Cells = {}
    for row in request.table.rows:
        for dataset in request.table.datasets(row):
            runs: dict[int, RunScores] = {}
            failed = False
            seeds = _seeds(request, row, dataset)
            for seed in seeds:
                folder = run_folder(request.out, row.source or row.name, dataset, seed)
                status = find_state(folder).status
                failed |= status == "failed"
                if status == "finished":
                    try:
                        runs[seed] = read_scores(folder, row.floor)
                    except SelftaughtError:  # the job shows the error
                        failed = True
            columns = cells.setdefault(row.name, {})[dataset] = {}
            paper = row.paper.get(dataset, ())
            for place, score in enumerate(request.table.columns[dataset]):
                last = {seed: run.last[score] for seed, run in runs.items() if score in run.last}
                best = {seed: run.best[score] for seed, run in runs.items() if score in run.best}
                columns[score] = Cell(last, best, paper[place] if paper else None, failed, len(seeds))
    return cells


def _seeds(request: Request, row: Row, dataset: str) -> list[int]:
    """The seeds that are asked for, and those of earlier commands."""
    place = run_folder(request.out, row.source or row.name, dataset, 0).parent
    names = {path.name.split(".")[0] for path in place.glob("seed-*")}
    return sorted({int(name[5:]) for name in names if name[5:].isdigit()} | set(range(request.seeds)))
