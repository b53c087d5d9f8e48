"""A run's complete state in one file, written atomically and read without unpickling anything."""

import io
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selftaught.errors import SelftaughtError, printable
from selftaught.files import write_atomically

FORMAT = 2
CHECKPOINT = "checkpoint.pt"
"""The state at the end of the last good epoch."""
PARTIAL = "partial.pt"
"""A later state in the middle of an epoch, if there is one."""
LISTS, SEPARATOR = ("files", "labeled"), "\0"


@dataclass
class Progress:
    """Where a run is. With the learner and the optimizer this is all that the next step depends on."""

    files: tuple[str, ...]
    """The training images that could be read."""
    labeled: tuple[str, ...]
    """The images to measure on that could be read, if there are any."""
    plan: Tensor
    """steps×batch: the batches of the epoch under way."""
    sums: Tensor
    """Sums of the losses over the epoch's steps so far."""
    start: dict[str, float]
    """What was measured before training."""
    probe: Tensor
    """The probes' neighbors after the last epoch."""
    epoch: int = 0
    """Finished epochs."""
    step: int = 0
    """Finished steps of the epoch under way."""
    history: list[dict[str, float]] = field(default_factory=list)
    """What was measured after each epoch."""


def save_checkpoint(path: Path, state: dict[str, Any], progress: Progress) -> None:
    content = {
        "format": FORMAT,
        # Names cannot hold a zero, and one text is saved and read much faster than a million.
        "progress": vars(progress) | {name: SEPARATOR.join(getattr(progress, name)) for name in LISTS},
        "random": _random_states(),
        **state,
    }
    buffer = io.BytesIO()  # torch.save hides why a file could not be written
    torch.save(content, buffer)
    write_atomically(path, buffer.getbuffer())


def load_checkpoint(run: Path) -> tuple[dict[str, Any], Progress] | None:
    """The latest state of a run, and where it is; None if it has none yet."""
    file = run / PARTIAL if (run / PARTIAL).exists() else run / CHECKPOINT
    if not file.exists():
        return None
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
        kind = content["format"]
    except Exception:  # whatever a damaged archive makes the reader say
        hint = f"delete it to go on from {CHECKPOINT}" if file.name == PARTIAL else "the run must be started again"
        raise SelftaughtError(f"the checkpoint {printable(file)} is damaged and cannot be read: {hint}") from None
    if kind != FORMAT:
        raise SelftaughtError(
            f"the checkpoint {printable(file)} has format {kind}, this version of selftaught reads format {FORMAT}: "
            "resume it with the version that wrote it"
        )
    saved = content.pop("progress")
    progress = Progress(**saved | {name: tuple(filter(None, saved[name].split(SEPARATOR))) for name in LISTS})
    return content, progress


def _random_states() -> dict[str, Any]:
    numpy_state = np.random.get_state(legacy=False)
    assert isinstance(numpy_state, dict)
    return {
        "python": random.getstate(),
        "numpy_key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
        "numpy_position": int(numpy_state["state"]["pos"]),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_states(states: dict[str, Any]) -> None:
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    key = states["numpy_key"].numpy().astype(np.uint32)
    np.random.set_state({"bit_generator": "MT19937", "state": {"key": key, "pos": states["numpy_position"]}})
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])  # of whichever GPU this process uses
