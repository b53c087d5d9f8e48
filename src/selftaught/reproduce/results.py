"""The results of a table as files, one for programs and one for people, each with the origin of its numbers."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch

import selftaught
from selftaught.devices import available_cores, choose_device
from selftaught.errors import SelftaughtError
from selftaught.files import write_atomically
from selftaught.learners import make_settings
from selftaught.reproduce.cells import Cell, collect
from selftaught.reproduce.folders import read_scores
from selftaught.reproduce.jobs import Job, incomplete_data
from selftaught.reproduce.paper import SENSITIVITY
from selftaught.reproduce.plots import write_sensitivity, write_shares
from selftaught.reproduce.request import Request
from selftaught.reproduce.tables import SHARES
from selftaught.reproduce.text import markdown

JSON, MARKDOWN = "results.json", "results.md"


def write_results(request: Request, jobs: Sequence[Job]) -> int:
    """Write the results into the output folder, each file whole or not at all; returns the number of failed jobs."""
    cells = collect(request)
    incomplete = incomplete_data(jobs, request.data)
    facts = {
        "table": request.table.name,
        "title": request.table.title,
        "command": request.command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_name(request.device),
        "versions": {
            "selftaught": selftaught.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "torchvision", "timm", "numpy")},
        },
        "seeds": request.seeds,
        "epochs": sorted({make_settings(**request.settings(*case)).epochs for case in request.cases}),
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
    return sum(note["status"] == "failed" for note in notes)


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
    state = job.state
    note: dict[str, Any] = {"row": job.row.name, "data": job.dataset, "seed": job.seed, "status": state.status}
    if state.status == "finished":
        try:
            run = read_scores(job.folder)
            note |= {"epochs": run.epochs, "seconds": round(run.seconds, 1)}
        except SelftaughtError as error:
            note |= {"status": "failed", "error": str(error)}
    elif state.status in ("failed", "cannot be run"):
        note["error"] = state.error
    return note


def device_name(device: str) -> str:
    """The device in words, such as a GPU's name."""
    chosen = choose_device(device)
    if chosen.type == "cuda":
        return torch.cuda.get_device_name(chosen)
    return f"{chosen.type} ({platform.machine()}, {available_cores()} cores)"


def differences(request: Request) -> dict[str, dict[str, list[Any]]]:
    """The settings that the command's options changed: the recipes' values, and the values used."""
    usual = replace(request, epochs=None, backbone=None, quick=None)
    found: dict[str, dict[str, list[Any]]] = {}
    for case in request.cases:
        before, after = (asdict(make_settings(**each.settings(*case))) for each in (usual, request))
        for name in (name for name in before if before[name] != after[name]):
            sides = found.setdefault(name, {"recipe": [], "here": []})
            for side, value in (("recipe", before[name]), ("here", after[name])):
                sides[side] += [] if value in sides[side] else [value]
    return found
