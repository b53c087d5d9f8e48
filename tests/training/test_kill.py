"""A run killed at any moment and resumed ends with the same bits as one never interrupted."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")

# Saving after every step makes every step a moment to be killed at.
PROGRAM = """
import sys
from selftaught import train
from selftaught.training import loop
loop.SAVE_INTERVAL = 0.0
options = {"backbone": "small", "dim": 8, "batch_size": 8, "neighbors": 2, "epochs": 3, "workers": 1}
if sys.argv[1] == "resume":
    train(resume=sys.argv[2])
else:
    train(sys.argv[1], out=sys.argv[2], eval=sys.argv[1], **options)
"""


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *map(str, arguments)], stderr=subprocess.DEVNULL)


def finish(*arguments: str | Path) -> None:
    assert start(*arguments).wait(timeout=120) == 0


def kill_when(process: subprocess.Popen[bytes], moment: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not moment():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_run_killed_again_and_again_ends_with_the_same_bits(photos: Path, tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    finish(photos, calm)

    def epochs() -> int:
        file = killed / "metrics.jsonl"
        return len(file.read_text().splitlines()) if file.exists() else 0

    moments: list[Callable[[], bool]] = [
        lambda: (killed / "settings.json").exists(),  # before there is any checkpoint
        lambda: bool(list(killed.glob(".partial.pt.*.tmp"))),  # while a checkpoint is being written
        lambda: epochs() == 1 and (killed / "partial.pt").exists(),  # in the middle of the second epoch
    ]
    process = start(photos, killed)
    for moment in moments:
        kill_when(process, moment)
        assert not (killed / "model.json").exists()
        process = start("resume", killed)
    assert process.wait(timeout=120) == 0
    for name in ("model.safetensors", "metrics.jsonl", "start.json"):
        assert (killed / name).read_bytes() == (calm / name).read_bytes(), name
    assert not list(killed.glob(".*.tmp"))


@pytest.mark.parametrize("stop", ["ctrl-c", "scheduler"])
def test_a_signal_saves_and_says_how_to_go_on(photos: Path, tmp_path: Path, stop: str) -> None:
    command = [sys.executable, "-m", "selftaught", "train", str(photos), "--out", str(tmp_path / "run")]
    options = ["--backbone", "small", "--batch-size", "8", "--neighbors", "2", "--epochs", "5000", "--set", "workers=2"]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, start_new_session=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT if stop == "ctrl-c" else signal.SIGTERM)  # both reach the workers too
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"selftaught train --resume {tmp_path / 'run'}" in error.splitlines()[-1]
    assert "Traceback" not in error
    assert (tmp_path / "run" / "partial.pt").exists()
