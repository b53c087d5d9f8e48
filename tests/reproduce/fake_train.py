"""A stand-in for training that leaves a run folder as the real one does, at once."""

import json
from pathlib import Path
from typing import Any


class FakeTrain:
    """Writes run folders with made-up scores; ``failing`` maps a row to the error to raise instead."""

    def __init__(self, failing: dict[str, BaseException] | None = None, seconds: float = 10.0) -> None:
        self.calls: list[dict[str, Any]] = []
        self.failing = failing or {}
        self.seconds = seconds

    def __call__(self, **arguments: Any) -> None:
        self.calls.append(arguments)
        run = Path(arguments.get("resume") or arguments["out"])
        run.mkdir(parents=True, exist_ok=True)
        (run / "settings.json").write_text("{}")
        (run / "checkpoint.pt").write_bytes(b"state")
        error = self.failing.get(run.parent.parent.name)
        if error is not None:
            raise error
        write_run(run, arguments.get("seed", 0), arguments.get("epochs", 2), self.seconds)


def write_run(run: Path, seed: int = 0, epochs: int = 2, seconds: float = 10.0) -> None:
    """A finished run: Recall@1 is 40% at the start, 60% + the seed at best, two points less at the end."""
    run.mkdir(parents=True, exist_ok=True)
    names = ("recall@2", "recall@4", "recall@8", "recall@10", "recall@100", "map@r", "r_precision")

    def scores(recall: float) -> dict[str, float]:
        return {"recall@1": recall, **dict.fromkeys(names, recall / 2)}

    best, last = 0.60 + seed / 100, 0.58 + seed / 100
    rows = [{"epoch": n + 1, "loss": 1.0, **scores(last if n == epochs - 1 else best)} for n in range(epochs)]
    (run / "start.json").write_text(json.dumps(scores(0.4)))
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = [{"epoch": n + 1, "seconds": seconds} for n in range(epochs)]
    (run / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in times))
    (run / "settings.json").write_text("{}")
    (run / "model.json").write_text("{}")
