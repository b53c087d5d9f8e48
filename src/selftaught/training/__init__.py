"""One training loop for every method, with checkpoints and signals that need no labels."""

from selftaught.training.automatic import choose_neighbors, resolve
from selftaught.training.estimate import choose_epochs, estimate, measure_pace
from selftaught.training.images import list_images
from selftaught.training.logbook import SIGNALS
from selftaught.training.model import SLACK, give_verdict
from selftaught.training.snapshots import Snapshot, kept, load_snapshot
from selftaught.training.start import load_unfinished
from selftaught.training.train import train

__all__ = [
    "SIGNALS",
    "SLACK",
    "Snapshot",
    "choose_epochs",
    "choose_neighbors",
    "estimate",
    "give_verdict",
    "kept",
    "list_images",
    "load_snapshot",
    "load_unfinished",
    "measure_pace",
    "resolve",
    "train",
]
