"""A run's complete state in one file, written atomically and read without unpickling anything."""

import io
import random
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from selftaught.errors import SelftaughtError, printable, raise_if_out_of_memory
from selftaught.files import open_regular, write_atomically
from selftaught.parallel import run_on_first
from selftaught.run_folder import CHECKPOINT, PARTIAL
from selftaught.training.optimizer import AVERAGES

FORMAT = 2
LISTS, SEPARATOR = ("files", "labeled"), "\0"
PARTS = ("learner", "optimizer", "random")


class DamagedCheckpoint(SelftaughtError):
    """A checkpoint whose content is not what was written."""


@dataclass
class TrainState:
    """The progress of a run. The next step depends only on this, the learner and the optimizer."""

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
    epoch: int = 0
    """Finished epochs."""
    step: int = 0
    """Finished steps of the epoch under way."""
    history: list[dict[str, float]] = field(default_factory=list)
    """What was measured after each epoch."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read from a file."""

    file: Path
    parts: Mapping[str, Any]
    """The states of learner, optimizer and random numbers."""
    state: TrainState
    passed_over: Path | None = None
    """A later state that is damaged."""


def save_checkpoint(path: Path, parts: Mapping[str, Any], state: TrainState) -> None:
    """Write a run's progress, the states of its learner and optimizer, and that of the random numbers."""
    content = {
        "format": FORMAT,
        # Names cannot hold a zero byte, and one string is saved and read much faster than a million.
        "progress": vars(state) | {name: SEPARATOR.join(getattr(state, name)) for name in LISTS},
        "random": _random_states(),
        "averaged": len(parts["optimizer"]["state"]),  # not told by the parameters: some may never get a gradient
        **parts,
    }
    buffer = io.BytesIO()  # torch.save hides why a file could not be written
    torch.save(content, buffer)
    write_atomically(path, buffer.getbuffer())


def load_checkpoint(run: Path) -> Checkpoint | None:
    """The latest state of a run, None if it has none yet; process 0 decides for all processes which file to read."""
    found: list[Checkpoint | None] = []

    def find() -> Path | None:
        found.append(find_latest(run))
        return None if found[0] is None else found[0].file

    file = run_on_first(find)
    return found[0] if found else None if file is None else read_checkpoint(file)


def read_checkpoint(file: Path) -> Checkpoint:
    """The content of a checkpoint; raises an error if it cannot be read or is not what was written."""
    with open_regular(file) as opened:
        try:
            with zipfile.ZipFile(opened) as archive:
                if archive.testzip() is not None:  # torch.load does not compare the checksums
                    raise ValueError("a checksum differs")
            opened.seek(0)
            with warnings.catch_warnings(action="ignore"):
                content = torch.load(opened, map_location="cpu", weights_only=True)
            kind = content["format"]
            if kind == FORMAT:
                parts = {name: content[name] for name in PARTS}
                if not all(isinstance(part, dict) for part in parts.values()):
                    raise TypeError("a part is no dictionary")
                averaged = len(parts["optimizer"]["state"])
                if content.get("averaged", averaged) != averaged:
                    raise ValueError("averages of the optimizer are missing")
                return Checkpoint(file, parts, _read_state(content["progress"]))
        except Exception as error:  # a damaged archive can make the readers raise anything
            raise_if_out_of_memory(error)
            raise DamagedCheckpoint(
                f"the checkpoint {printable(file)} is damaged and cannot be read: the run must be started again"
            ) from None
    raise SelftaughtError(
        f"the checkpoint {printable(file)} has format {printable(kind)}, this version of selftaught reads format "
        f"{FORMAT}: resume it with the version that wrote it"
    )


def find_latest(run: Path) -> Checkpoint | None:
    """The state in mid-epoch; if there is none, or it is damaged, the state at an epoch's end."""
    if (run / PARTIAL).exists():
        try:
            return read_checkpoint(run / PARTIAL)
        except DamagedCheckpoint:
            if not (run / CHECKPOINT).exists():
                raise
            return replace(read_checkpoint(run / CHECKPOINT), passed_over=run / PARTIAL)
    return read_checkpoint(run / CHECKPOINT) if (run / CHECKPOINT).exists() else None


def _read_state(saved: dict[str, Any]) -> TrainState:
    if saved.keys() != {part.name for part in fields(TrainState)}:
        raise KeyError("a part is missing")
    state = TrainState(**saved | {name: tuple(filter(None, saved[name].split(SEPARATOR))) for name in LISTS})
    plan, rows = state.plan, [state.start, *state.history]
    good = (
        (plan.ndim, plan.dtype) == (2, torch.int64)
        and bool(((plan >= 0) & (plan < len(state.files))).all())
        and 0 <= int(state.step) <= len(plan)
        and len(state.history) == state.epoch
        and (state.sums.ndim, state.sums.is_floating_point()) == (1, True)
        and all(isinstance(row["effective_rank"], float) for row in rows)
        and all(isinstance(value, (int, float)) for row in rows for value in row.values())
    )
    if not good:
        raise ValueError("the state of training does not fit together")
    return state


def restore_optimizer(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Give an optimizer a saved state, which must come from an optimizer with the same options and parameters."""
    for own, other in zip(optimizer.state_dict()["param_groups"], saved["param_groups"], strict=True):
        if any(type(other[name]) is not type(own[name]) or other[name] != own[name] for name in own if name != "lr"):
            raise ValueError("other options")
    shapes = [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
    names = {"momentum_buffer"} if isinstance(optimizer, SGD) else {"step", *AVERAGES}
    for number, state in saved["state"].items():
        right = [type(x) is int if name == "step" else tuple(x.shape) == shapes[number] for name, x in state.items()]
        if state.keys() != names or not all(right):
            raise ValueError("averages of other parameters")
    optimizer.load_state_dict(dict(saved))


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
        torch.cuda.set_rng_state(states["cuda"])  # the state of the GPU that this process uses
