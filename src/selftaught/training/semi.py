"""Semi-supervised training (Section 4.2): a supervised stage, then STML on all images from where that ended.

The first stage is a run of its own in the run's folder. The second is the run itself.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from selftaught.errors import SelftaughtError, printable
from selftaught.learners import load_settings, settings_for
from selftaught.parallel import first_decides
from selftaught.recipes import Settings
from selftaught.training.checkpoint import CHECKPOINT, load_checkpoint
from selftaught.training.features import FEATURES
from selftaught.training.saved import SETTINGS, finished, read_settings, write_settings

SUPERVISED = "supervised"


@dataclass(frozen=True)
class Start:
    """Where the second stage begins."""

    saved: dict[str, Any]
    """The first stage's settings file, which names the backbone."""
    network: dict[str, Tensor]


def first_stage(run: Path, saved: dict[str, Any], requested: Settings) -> tuple[Path, dict[str, Any], Settings] | None:
    """The supervised stage of a run, to be trained: its folder, what is saved of it, its settings; None if done."""
    stage = run / SUPERVISED
    if (run / CHECKPOINT).exists() or finished(stage):
        return None
    if (stage / SETTINGS).is_file():
        found = read_settings(stage)
        own_settings = load_settings(found["requested"])
        return stage, found, replace(own_settings, device=requested.device, workers=requested.workers)
    epochs = requested.supervised_epochs
    supervised = settings_for(requested, "multi-similarity", both_heads=True, epochs=epochs, snapshots=0)
    own = {**saved, "images": saved["labeled"], "labeled": None, "unlabeled": None, "requested": asdict(supervised)}
    stage.mkdir(exist_ok=True)
    write_settings(stage, own)
    return stage, own, supervised


def started_network(run: Path, saved: dict[str, Any]) -> Start | None:
    """What the supervised stage has learned, as process 0 reads it; None for a run without one."""
    return None if saved["labeled"] is None else first_decides(partial(_read_start, run))


def _read_start(run: Path) -> Start:
    stage = run / SUPERVISED
    state = load_checkpoint(stage)
    if state is None:
        raise SelftaughtError(
            f"the supervised stage in {printable(stage)} has no checkpoint left: delete "
            f"{printable(run)} and start again"
        )
    prefix = "network."
    learner = state[0]["learner"]
    network = {name.removeprefix(prefix): tensor for name, tensor in learner.items() if name.startswith(prefix)}
    return Start(read_settings(stage), network)


def begun(run: Path) -> bool:
    """Whether there is anything to go on with, in either stage."""
    return any((folder / name).exists() for folder in (run, run / SUPERVISED) for name in (CHECKPOINT, FEATURES))
