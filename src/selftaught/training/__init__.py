"""One training loop for every method, with checkpoints and signals that need no labels."""

from selftaught.training.automatic import resolve, time_per_image
from selftaught.training.processes import launched
from selftaught.training.snapshots import Snapshot, kept, load_snapshot
from selftaught.training.train import train
from selftaught.training.unfinished import load_unfinished

__all__ = [
    "Snapshot",
    "kept",
    "launched",
    "load_snapshot",
    "load_unfinished",
    "resolve",
    "time_per_image",
    "train",
]
