"""One training loop for every method, with checkpoints and signals that need no labels."""

from selftaught.training.automatic import choose_neighbors as choose_neighbors
from selftaught.training.automatic import resolve as resolve
from selftaught.training.estimate import choose_epochs as choose_epochs
from selftaught.training.estimate import estimate as estimate
from selftaught.training.estimate import measure_pace as measure_pace
from selftaught.training.images import RunImages as RunImages
from selftaught.training.images import list_images as list_images
from selftaught.training.logbook import SIGNALS as SIGNALS
from selftaught.training.model import SLACK as SLACK
from selftaught.training.model import give_verdict as give_verdict
from selftaught.training.optimizer import AdamP as AdamP
from selftaught.training.snapshots import Snapshot as Snapshot
from selftaught.training.snapshots import kept as kept
from selftaught.training.snapshots import load_snapshot as load_snapshot
from selftaught.training.start import load_unfinished as load_unfinished
from selftaught.training.train import train as train
