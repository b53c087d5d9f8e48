"""Losses on their way from the device to the progress line."""

import torch
from torch import Tensor


class Readback:
    """The latest losses that have reached the host, without ever waiting for the device."""

    def __init__(self) -> None:
        self.values: list[float] | None = None
        self._waiting: tuple[Tensor, torch.cuda.Event | None] | None = None

    def offer(self, losses: Tensor) -> None:
        if self._waiting is not None:
            copy, event = self._waiting
            if event is not None and not event.query():
                return
            self.values = copy.tolist()
        if losses.device.type == "cuda":
            event = torch.cuda.Event()
            copy = torch.empty(losses.shape, dtype=losses.dtype, pin_memory=True)
            copy.copy_(losses, non_blocking=True)
            event.record()
            self._waiting = copy, event
        else:
            self._waiting = None
            self.values = losses.tolist()
