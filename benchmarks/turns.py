"""The time of several sides that do the same, which take turns within one run."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch


def take_turns(sides: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """The median seconds of each side. A turn before these does what is done only once, and is not counted."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, side in sides.items():
            _wait()
            began = time.perf_counter()
            side()
            _wait()
            if turn:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
