"""What a run writes about itself: metrics, timing, curves, TensorBoard."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from selftaught.errors import SelftaughtError, UsageError
from selftaught.files import read_json_lines, write_atomically
from selftaught.parallel import rank
from selftaught.report import plot_curves
from selftaught.run_folder import CURVES, METRICS, MODELS, START, TIMING
from selftaught.training.checkpoint import TrainState

DRAW_INTERVAL = 60.0
ALIKE = 1.05
"""An effective rank below this before training says that all embeddings lie in one direction."""
SIGNALS: dict[str, dict[str, str]] = {
    f"{METRICS}, one line per epoch; {START}, before training": {
        "epoch": "How many epochs were done.",
        "lr": "Learning rate of the backbone in the epoch; of the heads, where they alone learn.",
        "loss": "Mean of the minimized loss over the epoch's steps; Eq. 3 for STML.",
        "effective_rank": "In how many directions the embeddings of all training images spread: the exponential of "
        "the entropy of their singular values' shares. Far below its start, training has collapsed.",
        "view_agreement": "How often, of two random views of an image, the second is nearer to the first than any "
        "other image is. Near 0, training has collapsed.",
        "recall@1, recall@2, recall@4, recall@8, recall@10, recall@100": "With --eval: the share of labeled images "
        "that have an image of their own class among their 1, 2, 4, … nearest.",
        "r_precision": "With --eval: the share of its own class among an image's R nearest, where R is the number of "
        "other images of its class.",
        "map@r": "With --eval: the same, but nearer images count more.",
    },
    f"{MODELS}, for the model and those it is compared with": {
        "found_again": "How surely the center of an image finds the whole of it among all: the mean of 1/rank. It "
        "needs no labels, and decides which model is served (docs/best.md).",
        "exponent": "How much of the differences in variance the whitened ones remove: 0.5, or down to 0.2 where "
        "images already form groups without training (docs/best.md).",
    },
    f"{TIMING}, one line per epoch": {
        "seconds": "Duration of the whole epoch.",
        "step_seconds": "Duration of its steps alone.",
        "images_per_second": "Images learned from, divided by the duration of the steps.",
    },
}
"""What a run of any method writes about itself, file by file."""


class Logbook:
    """Writes the run's records; timing is kept apart, so that the metrics of equal runs are equal files."""

    def __init__(self, run: Path, tensorboard: bool = False) -> None:
        self.run = run
        self.writes = rank() == 0
        """True in only one of several processes."""
        self.seconds_beside_steps = 0.0
        self._drawn_at = time.monotonic()
        self._timing: list[dict[str, float]] = []
        self._board = _summary_writer() if tensorboard else None
        self._writer: Any = None

    def resume(self, state: TrainState) -> None:
        """Bring the files to the state of a checkpoint."""
        before = read_json_lines(self.run / TIMING)
        self._timing = [row for row in before if isinstance(row.get("epoch"), int) and row["epoch"] <= state.epoch]
        self.write(state)

    def write(self, state: TrainState) -> None:
        """Write all measurements so far, and now and then draw the curves."""
        if not self.writes:
            return
        write_atomically(self.run / START, json.dumps(state.start) + "\n", lasting=False)
        write_atomically(self.run / METRICS, _lines(state.history), lasting=False)
        if time.monotonic() - self._drawn_at > DRAW_INTERVAL:
            self.draw(state)

    def timing(self, epoch: int, images: int, steps: float, whole: float) -> None:
        """Note how long an epoch took, in its steps and as a whole."""
        self.seconds_beside_steps = whole - steps
        row = {"epoch": epoch, "seconds": whole, "step_seconds": steps, "images_per_second": images / max(steps, 1e-9)}
        self._timing.append({name: round(value, 3) for name, value in row.items()})
        if self.writes:
            write_atomically(self.run / TIMING, _lines(self._timing), lasting=False)

    def board(self, row: dict[str, float]) -> None:
        """Send an epoch to TensorBoard, if it is wanted."""
        if self._board is not None and self.writes:
            self._writer = self._writer or self._board(self.run / "tensorboard")
            for name, value in row.items():
                self._writer.add_scalar(name, value, row["epoch"])
            self._writer.flush()

    def close(self, state: TrainState) -> None:
        """Draw the curves a last time, however the run ended."""
        if not self.writes:
            return
        with suppress(SelftaughtError):  # a full disk is reported elsewhere
            self.draw(state)
        if self._writer is not None:
            self._writer.close()

    def draw(self, state: TrainState) -> None:
        """Draw the curves of all measurements so far."""
        plot_curves(state.start, state.history, self.run / CURVES, len(state.labeled))
        self._drawn_at = time.monotonic()


def epoch_line(row: dict[str, float], epochs: int) -> str:
    """One epoch in one line."""
    parts = [
        f"epoch {row['epoch']:.0f}/{epochs}",
        f"contrastive {row['contrastive']:.4f}" if "contrastive" in row else f"loss {row['loss']:.4f}",
        f"distillation {row['distillation']:z.5f}" if "distillation" in row else "",
        signals_line(row),
    ]
    return ", ".join(part for part in parts if part)


def signals_line(row: dict[str, float]) -> str:
    """The effective rank in one line, and the score if there are labels."""
    scores = f", Recall@1 {row['recall@1']:.1%}" if "recall@1" in row else ""
    alike = "epoch" not in row and row["effective_rank"] < ALIKE
    doubt = "; the images hardly differ: are they copies of one photo?" if alike else ""
    return f"effective rank {row['effective_rank']:.1f}{scores}{doubt}"


def _lines(rows: list[dict[str, float]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("TensorBoard is not installed: pip install selftaught[tensorboard]") from None
    return SummaryWriter
