"""The second network of MoCo, BYOL and mean shift, a moving average of the one that learns, and its queue."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selftaught.errors import UsageError
from selftaught.method import MovingAverage
from selftaught.networks import EmbeddingNetwork
from selftaught.recipes import Count, Fraction, Settings


@dataclass(frozen=True)
class TargetSettings(Settings):
    """The settings of a method with a target network."""

    momentum: Fraction = 0.999
    """m of the moving average."""


class Target(nn.Module):
    """A copy of a network that follows it: in eval mode unless its learner says otherwise, and without gradient."""

    def __init__(self, leader: EmbeddingNetwork, momentum: float) -> None:
        super().__init__()
        self.network = copy.deepcopy(leader).requires_grad_(False).eval()
        self.momentum = momentum
        self._average: MovingAverage | None = None

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """uint8 n×3×H×W → the embeddings of head f, n×d."""
        f: Tensor = self.network(images)["f"]
        return f

    def follow(self, leader: EmbeddingNetwork) -> None:
        """θ ← m θ + (1 - m) θ of the leader."""
        if self._average is None:  # before now, the parameters may still be moved
            self._average = MovingAverage(self.network, leader, self.momentum)
        self._average.update()

    def train(self, mode: bool = True) -> "Target":  # noqa: ARG002
        return super().train(False)


@dataclass(frozen=True)
class QueueSettings(TargetSettings):
    """The settings of a method that remembers the embeddings of its target network."""

    queue: Count = 9600
    """The number of embeddings that are remembered."""


def make_queue(settings: QueueSettings) -> "Queue":
    """The queue that the settings ask for; it must hold at least one batch."""
    assert settings.batch_size is not None
    if settings.queue < settings.batch_size:
        raise UsageError(
            f"queue {settings.queue} is shorter than a batch of {settings.batch_size} images: give at least "
            f"{settings.batch_size}"
        )
    return Queue(settings.queue, settings.dim)


class Queue(nn.Module):
    """The latest embeddings that were put in; the oldest are dropped first. No operation waits for the device.

    Example:
        >>> queue = Queue(length=3, dim=1)
        >>> _ = queue.put(torch.tensor([[1.0], [2.0]])), queue.put(torch.tensor([[3.0], [4.0]]))
        >>> queue.rows.flatten().tolist()
        [4.0, 2.0, 3.0]
    """

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        self.rows = nn.Buffer(torch.zeros(length, dim))
        self.count = nn.Buffer(torch.zeros((), dtype=torch.long))
        """The number of rows that were ever put in: it tells which slot is next, and which ones are still empty."""

    @torch.no_grad()
    def put(self, rows: Tensor) -> Tensor:
        """Put in n×d rows in order, n at most the length; returns their slots."""
        if len(rows) > len(self.rows):
            raise ValueError(f"{len(rows)} rows do not fit into a queue of {len(self.rows)}")
        slots = (self.count + torch.arange(len(rows), device=self.rows.device)) % len(self.rows)
        self.rows.index_copy_(0, slots, rows.to(self.rows))
        self.count.add_(len(rows))
        return slots

    def similarities(self, queries: Tensor) -> Tensor:
        """Dot products of n×d queries with all rows, n×length; -inf where the queue is still empty."""
        empty = torch.arange(len(self.rows), device=self.rows.device) >= self.count
        return (queries @ self.rows.T).masked_fill(empty, -torch.inf)
