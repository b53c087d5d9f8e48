"""The training of a model, as far as it is known, for its users."""

from pathlib import Path
from typing import Any

from selftaught.files import read_json, read_json_lines
from selftaught.run_folder import METRICS, MODELS, SETTINGS, START

SCORES = ("recall@1", "recall@2", "recall@4", "recall@8", "r_precision", "map@r")
SIGNALS = ("effective_rank", "found_again")


def add_history(description: dict[str, Any], run: Path) -> dict[str, Any]:
    """A model's description with the history of its training from its folder, unless it has one already."""
    history = description.get("training") or read_history(run)
    return description | {"training": history} if history else description


def read_history(run: Path) -> dict[str, Any]:
    """The sources of a run's images, and its numbers before and after training, as far as they exist."""
    record, rows = read_json(run / SETTINGS) or {}, read_json_lines(run / METRICS)
    models = read_json(run / MODELS) or {}
    named = models.get("models")
    measured = (
        {name: _numbers(row) for name, row in named.items() if isinstance(row, dict)} if isinstance(named, dict) else {}
    )
    floor = models.get("floor") if models.get("floor") in measured and "trained" in measured else None
    before, after = _numbers(read_json(run / START) or {}), _numbers(rows[-1]) if rows else {}
    if floor and rows:  # a finished model differs from the network of its last epoch: it was measured itself
        before, after = measured[floor], measured["trained"]
    history: dict[str, Any] = {
        "images": [Path(str(record[name])).name for name in ("images", "labeled", "unlabeled") if record.get(name)],
        "measured_on": Path(str(record["eval"])).name if record.get("eval") else None,
        "epochs": len(rows),
        "floor": floor,
        "before": before,
        "after": after,
        "without_training": {n: row["recall@1"] for n, row in measured.items() if n != "trained" and "recall@1" in row},
    }
    return {name: value for name, value in history.items() if value}


def verdict(description: dict[str, Any]) -> str:
    """In words whether training has helped, as far as that is known."""
    if description.get("recipe", "none") == "none":
        return "It was not trained, so there is nothing to judge: training must beat it."
    history = description.get("training", {})
    before, after = history.get("before", {}), history.get("after", {})
    if "recall@1" in before and "recall@1" in after:
        floors = history.get("without_training", {})
        first, last = max(floors.values(), default=before["recall@1"]), after["recall@1"]
        moved = "raised" if last > first else "lowered" if last < first else "did not change"
        told = f"Training {moved} Recall@1 on the labeled images it was measured on: {first:.1%} before"
        told += f"{' at best' if len(floors) > 1 else ''}, {last:.1%} after."
        if description.get("trained") is False:
            told += " This is the model before."
        listed = ", ".join(f"{score:.1%} ({name})" for name, score in floors.items())
        return f"{told} Without any training: {listed}." if listed else told
    if after:
        told = "No labels were given, so it was not measured whether training has helped."
        if "found_again" in before and "found_again" in after:
            told += (
                " The center of an image finds the whole of it among all others "
                f"{before['found_again']:.1%} of the time before, {after['found_again']:.1%} after. Such a number can "
                "show harm, but hardly a gain."
            )
        return told
    return "No numbers of its training are known."


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {name: float(row[name]) for name in (*SCORES, *SIGNALS) if isinstance(row.get(name), int | float)}
