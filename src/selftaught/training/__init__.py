"""One training loop for every method, with checkpoints and signals that need no labels."""

from selftaught.training.automatic import choose_neighbors, resolve
from selftaught.training.estimate import choose_epochs, estimate, measure_pace
from selftaught.training.images import RunImages, list_images
from selftaught.training.logbook import SIGNALS
from selftaught.training.model import SLACK, give_verdict
from selftaught.training.optimizer import AdamP
from selftaught.training.snapshots import Snapshot, kept, load_snapshot
from selftaught.training.start import load_unfinished
from selftaught.training.train import train
