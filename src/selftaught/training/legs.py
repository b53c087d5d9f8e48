"""Legs of a run: a run, finished or not, goes on to another number of epochs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from selftaught.errors import UsageError, counted, printable
from selftaught.learners import change_settings
from selftaught.recipes import Settings
from selftaught.run_folder import RunRecord
from selftaught.training.checkpoint import find_latest

CHANGES = {"epochs", "lr", "head_lr"}
"""What a leg may change."""
SETTLED_AFTER, SETTLED_RATE = 30, 0.01
"""The epochs in which the rates of the schedule "settle" fall, and their factor from then on. Longer schedules lost up
to 4 points of Recall@1, at full rates and at low ones (docs/best.md)."""


def begin_leg(run: Path, record: RunRecord, changes: Mapping[str, Any]) -> RunRecord:
    """The record of a run that goes on to another number of epochs.

    The epochs after a run's end get a schedule of their own; before its end, one schedule covers all epochs.
    """
    checkpoint = find_latest(run)
    state = None if checkpoint is None else checkpoint.state
    requested = change_settings(record.requested, changes)
    if requested.epochs is None:
        raise UsageError("a resumed run needs a number of epochs, such as --epochs 20")
    if state is None:
        return replace(record, requested=requested)
    if requested.epochs <= state.epoch:
        raise UsageError(
            f"{printable(run)} has done {counted(state.epoch, 'epoch')} already: "
            "give --epochs more than that, or leave it out"
        )
    ended = record.settings is not None and state.epoch == record.settings.epochs and not state.step
    return replace(record, requested=requested, leg=state.epoch if ended else record.leg)


def rate_factor(settings: Settings, leg: int, epoch: int) -> float:
    """The factor of the learning rates in an epoch of the leg that began after ``leg`` epochs."""
    if settings.schedule == "constant":
        return 1.0
    done, length = epoch - leg, scheduled_epochs(settings, leg)
    return (1 + math.cos(math.pi * done / length)) / 2 if done < length else SETTLED_RATE


def scheduled_epochs(settings: Settings, leg: int) -> int:
    """The number of epochs in which the rates of a leg fall."""
    assert settings.epochs is not None
    epochs = max(1, settings.epochs - leg)
    return min(epochs, SETTLED_AFTER) if settings.schedule == "settle" else epochs


def describe_rates(settings: Settings, leg: int, done: int) -> str:
    """The schedule of the epochs that are to come, in one line."""
    assert settings.epochs is not None
    assert settings.lr is not None
    rate, left = settings.lr * rate_factor(settings, leg, done), settings.epochs - done
    which = f"epoch {done + 1}" if left == 1 else f"epochs {done + 1} to {settings.epochs}"
    if settings.schedule == "constant":
        return f"{which}: at the constant learning rate {rate:.3g}"
    anew, falls = " again" if done == leg > 0 else "", leg + scheduled_epochs(settings, leg)
    if done >= falls:
        return f"{which}: at the low learning rate {rate:.3g}"
    line = f"{which}: the learning rate starts at {rate:.3g}{anew} and falls to 0 in a cosine"
    if falls < settings.epochs:
        line += f" until epoch {falls}, and then stays at {settings.lr * SETTLED_RATE:.3g}"
    return line
