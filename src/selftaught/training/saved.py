"""A run's settings file: what was asked for, what was chosen, and why."""

import json
from pathlib import Path
from typing import Any

from selftaught.errors import SelftaughtError, UsageError, shown
from selftaught.files import write_atomically
from selftaught.networks import Preprocessing
from selftaught.recipes import from_saved
from selftaught.training.checkpoint import CHECKPOINT

SETTINGS = "settings.json"
NEEDED = {"images", "labeled", "unlabeled", "eval", "own_backbone", "allow_skipped", "tensorboard"}


def write_settings(run: Path, saved: dict[str, Any]) -> None:
    write_atomically(run / SETTINGS, json.dumps(saved, indent=2) + "\n")


def read_settings(run: Path) -> dict[str, Any]:
    """What a run was started with; one sentence if that is not to be had."""
    file = run / SETTINGS
    if not file.is_file():
        raise UsageError(f"there is no run to resume in {shown(run)}: start one with selftaught train PHOTOS --out RUN")
    try:
        saved: dict[str, Any] = json.loads(file.read_text("utf-8", "surrogateescape"))
        from_saved(saved["requested"])
        needed = set(NEEDED)
        if (run / CHECKPOINT).exists():
            needed |= {"backbone", "pretrained"}
            Preprocessing(**saved["preprocessing"])
        if needed - set(saved):
            raise KeyError
    except (ValueError, KeyError, TypeError):
        raise SelftaughtError(
            f"{shown(file)} is damaged or from another version: the run must be started again"
        ) from None
    return saved
