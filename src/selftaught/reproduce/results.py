"""The results of a table as files: one for programs, one for people."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from selftaught.errors import SelftaughtError
from selftaught.files import write_atomically
from selftaught.reproduce.analysis import SENSITIVITY
from selftaught.reproduce.cells import Cell, collect
from selftaught.reproduce.folders import failure, read_scores, status
from selftaught.reproduce.inputs import incomplete_data
from selftaught.reproduce.plan import Job
from selftaught.reproduce.provenance import command, device_name, differences, epochs, versions
from selftaught.reproduce.request import Request
from selftaught.reproduce.sensitivity import write_sensitivity
from selftaught.reproduce.shares import SHARES, write_shares
from selftaught.reproduce.text import markdown

JSON, MARKDOWN = "results.json", "results.md"


def write_results(request: Request, jobs: Sequence[Job]) -> None:
    """Write results.json and results.md into the output folder, each whole or not at all."""
    cells = collect(request)
    incomplete = incomplete_data(jobs, request.data)
    facts = {
        "table": request.table.name,
        "title": request.table.title,
        "command": command(request),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_name(request.device),
        "versions": versions(),
        "seeds": request.seeds,
        "epochs": epochs(request),
        "incomplete_data": incomplete,
        "comparable_with_paper": (
            request.table.compared and request.epochs is None and request.backbone is None and not incomplete
        ),
        "differences": differences(request),
    }
    notes = [job_note(job) for job in jobs]
    rows = [
        {"name": row.name, "label": row.label, "architecture": row.arch, "scores": _plain(cells[row.name])}
        for row in request.table.rows
    ]
    text = json.dumps({**facts, "rows": rows, "jobs": notes}, indent=2, ensure_ascii=False)
    write_atomically(request.out / JSON, text + "\n")
    write_atomically(request.out / MARKDOWN, markdown(request.table, cells, facts, notes))
    if request.table.name == SENSITIVITY.name:
        write_sensitivity(request.table, cells, request.out)
    if request.table.name == SHARES.name:
        write_shares(cells, next(iter(request.table.columns)), request.out)


def _plain(scores: Mapping[str, Mapping[str, Cell]]) -> dict[str, Any]:
    return {
        dataset: {
            score: {
                "mean": cell.mean,
                "deviation": cell.deviation,
                "best_on_test": cell.best_mean,
                "by_seed": {seed: {"last": cell.last[seed], "best_on_test": cell.best.get(seed)} for seed in cell.last},
                "paper": cell.paper,
            }
            for score, cell in columns.items()
        }
        for dataset, columns in scores.items()
    }


def job_note(job: Job) -> dict[str, Any]:
    """The state of a job, in words and numbers."""
    note: dict[str, Any] = {"row": job.row.name, "data": job.dataset, "seed": job.seed, "status": status(job.folder)}
    if note["status"] == "finished":
        try:
            run = read_scores(job.folder)
            note |= {"epochs": run.epochs, "seconds": round(run.seconds, 1)}
        except SelftaughtError as error:
            note |= {"status": "failed", "error": str(error)}
    elif note["status"] == "failed":
        note["error"] = failure(job.folder)[0]
    elif job.missing:
        note |= {"status": "cannot be run", "error": "; ".join(job.missing)}
    return note
