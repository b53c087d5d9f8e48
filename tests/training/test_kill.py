"""A run killed at any moment and resumed ends with the same bits as one never interrupted."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from several import PATIENCE, apart, run_command, wait_until

from selftaught import train
from selftaught.training import loop

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")

OPTIONS: dict[str, Any] = {"backbone": "small", "dim": 8, "batch_size": 8, "neighbors": 2, "epochs": 3, "workers": 1}
Moment = Callable[[Path, bool], bool]
"""Whether to be killed when a file is put in its place, and when it is there."""


def learn(photos: Path | None, run: Path, moment: Moment | None = None) -> None:
    """A run, new or resumed, that is killed at a moment. All steps are saved, so that each is one to be killed at."""
    patch = pytest.MonkeyPatch()
    patch.setattr(loop, "SAVE_INTERVAL", 0.0)
    place: Callable[[Path, Path], Path] = Path.replace

    def replace(file: Path, target: Path) -> Path:
        for done in (False, True):
            if moment and moment(target, done):
                os.kill(os.getpid(), signal.SIGKILL)
            if not done:
                place(file, target)
        return target

    patch.setattr(Path, "replace", replace)
    train(photos, out=run, eval=photos, quiet=True, **OPTIONS) if photos else train(resume=run, quiet=True)


def before_any_checkpoint(file: Path, done: bool) -> bool:
    return done and file.name == "settings.json"


def while_a_checkpoint_is_written(file: Path, done: bool) -> bool:
    return not done and file.name == "partial.pt"


def in_the_middle_of_the_second_epoch(file: Path, done: bool) -> bool:
    metrics = file.with_name("metrics.jsonl")
    return done and file.name == "partial.pt" and metrics.exists() and len(metrics.read_text().splitlines()) == 1


def test_a_run_killed_again_and_again_ends_with_the_same_bits(photos: Path, tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    moments = (before_any_checkpoint, while_a_checkpoint_is_written, in_the_middle_of_the_second_epoch)
    for number, moment in enumerate(moments):
        with apart(learn, None if number else photos, killed, moment) as process:
            process.join(PATIENCE)
            assert process.exitcode == -signal.SIGKILL
        assert bool(list(killed.glob(".partial.pt.*.tmp"))) == (moment is while_a_checkpoint_is_written)
        assert (killed / "partial.pt").exists() == (moment is in_the_middle_of_the_second_epoch)
        assert not (killed / "model.json").exists()
    for photos_or_none, run in ((photos, calm), (None, killed)):
        with apart(learn, photos_or_none, run) as process:
            process.join(PATIENCE)
            assert process.exitcode == 0
    for name in ("model.safetensors", "metrics.jsonl", "start.json"):
        assert (killed / name).read_bytes() == (calm / name).read_bytes(), name
    assert not list(killed.glob(".*.tmp"))


@pytest.mark.parametrize("stop", ["ctrl-c", "scheduler"])
def test_a_signal_saves_and_says_how_to_go_on(photos: Path, tmp_path: Path, stop: str) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    options = ["--backbone", "small", "--batch-size", "8", "--neighbors", "2", "--epochs", "5000", "--set", "workers=2"]
    with apart(run_command, log, "train", photos, "--out", run, *options) as process:
        metrics = run / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, process.is_alive)
        os.killpg(process.pid, signal.SIGINT if stop == "ctrl-c" else signal.SIGTERM)  # both reach the workers too
        process.join(PATIENCE)
        assert process.exitcode == 130
    error = log.read_text()
    assert f"selftaught train --resume {run}" in error.splitlines()[-1]
    assert "Traceback" not in error
    assert (run / "partial.pt").exists()
