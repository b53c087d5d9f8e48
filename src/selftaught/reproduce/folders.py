"""Run folders: the state of each, and its scores."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from selftaught.errors import SelftaughtError, printable
from selftaught.files import read_file, read_json, read_json_lines, write_json
from selftaught.model_files import DESCRIPTION
from selftaught.run_folder import CHECKPOINT, METRICS, PARTIAL, SETTINGS, START, TIMING, is_finished, read_models


@dataclass(frozen=True)
class State:
    """How far a run has come, and if it went wrong or cannot be run: why."""

    status: Literal["to run", "begun", "finished", "failed", "cannot be run"]
    error: str = ""
    final: bool = False
    """Whether a failed run would fail again."""


@dataclass(frozen=True)
class RunScores:
    """The scores of a finished run in percent, and the seconds its epochs took."""

    last: Mapping[str, float]
    best: Mapping[str, float] = field(default_factory=dict)
    """The scores in the epoch with the best Recall@1 on the test images."""
    epochs: int = 0
    seconds: float = 0.0


def run_folder(out: Path, row: str, dataset: str, seed: int) -> Path:
    return out / "runs" / row / dataset / f"seed-{seed}"


def find_state(folder: Path) -> State:
    """The state of a run, from its files and the note beside its folder."""
    if _failure_file(folder).exists():
        noted = read_json(_failure_file(folder)) or {}
        return State("failed", str(noted.get("error", "")), bool(noted.get("final")))
    if not (folder / DESCRIPTION).exists():
        return State("begun" if (folder / SETTINGS).exists() else "to run")
    if is_finished(folder):
        return State("finished")
    return State("failed", f"training collapsed; see {printable(folder)}", final=True)  # killed before this was noted


def note_failure(folder: Path, sentence: str, final: bool) -> None:
    """Write beside the run folder why the run failed; ``final``: running it again would not help."""
    file = _failure_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"error": sentence, "final": final}, indent=None)


def forget_failure(folder: Path) -> None:
    _failure_file(folder).unlink(missing_ok=True)


def drop_checkpoints(folder: Path) -> None:
    """Delete files that only an unfinished run needs; a finished one keeps its model."""
    for name in (CHECKPOINT, PARTIAL):
        for file in folder.rglob(name):
            file.unlink()


def read_scores(folder: Path, floor: str = "") -> RunScores:
    """The scores of a finished run on its test images, or those of the untrained model ``floor`` that it has measured.

    Without pretrained weights, it has measured none.
    """
    try:
        if floor:
            models = read_models(folder)
            return RunScores(_scores(models["models"].get(floor, {})) if models is not None else {})
        start = json.loads(read_file(folder / START))
        epochs = [json.loads(line) for line in read_file(folder / METRICS).splitlines()]
        rows = [_scores(row) for row in epochs if "recall@1" in row]
        last = rows[-1] if rows else _scores(start)
        best = max(rows, key=lambda row: row["recall@1"]) if rows else {}
        saved = json.loads(read_file(folder / SETTINGS).decode("utf-8", "surrogateescape"))
        if len(epochs) != int(saved.get("settings", {}).get("epochs", len(epochs))):
            raise ValueError("epochs are missing")
        return RunScores(last, best, len(epochs), run_seconds(folder))
    except (SelftaughtError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise SelftaughtError(f"the run in {printable(folder)} is damaged: delete it and run it again") from None


def run_seconds(folder: Path) -> float:
    """Seconds that the epochs of a run and its earlier stages took; 0 if that cannot be read."""
    try:
        seconds = sum(float(row["seconds"]) for file in folder.rglob(TIMING) for row in read_json_lines(file))
    except (ValueError, KeyError, TypeError, OverflowError):
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _scores(row: Mapping[str, float]) -> dict[str, float]:
    scores = {
        name: 100 * float(value)
        for name, value in row.items()
        if name.startswith("recall@") or name in ("map@r", "r_precision")
    }
    if not all(map(math.isfinite, scores.values())):
        raise ValueError("a score is no number")
    return scores


def _failure_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.failed.json")
