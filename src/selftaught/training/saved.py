"""A run's settings file: what was asked for, what was chosen, and why; and whether the run is at its end."""

import json
from pathlib import Path
from typing import Any

from selftaught.embedder import DESCRIPTION
from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import write_atomically
from selftaught.learners import load_settings
from selftaught.networks import Preprocessing
from selftaught.training.checkpoint import CHECKPOINT

SETTINGS = "settings.json"
NEEDED = {"images", "labeled", "unlabeled", "eval", "own_backbone", "allow_skipped", "tensorboard"}


def write_settings(run: Path, saved: dict[str, Any]) -> None:
    write_atomically(run / SETTINGS, json.dumps(saved, indent=2) + "\n")


def read_settings(run: Path) -> dict[str, Any]:
    """What a run was started with; one sentence if that is not to be had."""
    file = run / SETTINGS
    if not file.is_file():
        raise UsageError(
            f"there is no run to resume in {printable(run)}: start one with selftaught train PHOTOS --out RUN"
        )
    try:
        saved: dict[str, Any] = json.loads(file.read_text("utf-8", "surrogateescape"))
        load_settings(saved["requested"])
        needed = set(NEEDED)
        if (run / CHECKPOINT).exists():
            needed |= {"backbone", "pretrained"}
            Preprocessing(**saved["preprocessing"])
        if needed - set(saved):
            raise KeyError
    except UsageError as error:
        raise SelftaughtError(f"the settings in {printable(file)} cannot be used: {error}") from None
    except (ValueError, KeyError, TypeError):
        raise SelftaughtError(
            f"{printable(file)} is damaged or from another version: the run must be started again"
        ) from None
    return saved


def finished(run: Path) -> bool:
    """Whether a run has reached its end; one that collapsed has a model too, but not the last one."""
    try:
        description = json.loads((run / DESCRIPTION).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(description, dict) and bool(description.get("finished", True))
