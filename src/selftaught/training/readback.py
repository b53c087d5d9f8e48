"""Losses on their way from the device to the progress line."""

import torch
from torch import Tensor


class Readback:
    """The latest losses that have reached the host, without ever waiting for the device."""

    def __init__(self) -> None:
        self.values: list[float] | None = None
        self._waiting: tuple[Tensor, torch.cuda.Event] | None = None

    def offer(self, losses: Tensor) -> None:
        """Take in the losses of a step; left out while earlier ones are on their way."""
        if losses.device.type != "cuda":
            self.values = losses.tolist()
            return
        if self._waiting is not None:
            copy, arrived = self._waiting
            if not arrived.query():
                return
            self.values = copy.tolist()
        copy, arrived = torch.empty(losses.shape, dtype=losses.dtype, pin_memory=True), torch.cuda.Event()
        copy.copy_(losses, non_blocking=True)
        arrived.record()
        self._waiting = copy, arrived
