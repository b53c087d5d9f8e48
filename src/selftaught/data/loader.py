"""Worker processes that answer batches of requests, in order, and serve every pass of a run."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from selftaught.data.requests import ViewRequest

T = TypeVar("T")


class Loader(Generic[T]):
    """Hands batches of requests to a dataset, in order. Workers start at the first one and stay until :meth:`close`."""

    def __init__(
        self, dataset: Dataset[Any], collate: Callable[[list[Any]], T], workers: int, pin_memory: bool = False
    ) -> None:
        self._requests: Iterable[list[ViewRequest]] = ()
        self._loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_sampler=_Forward(self),
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=pin_memory,
            collate_fn=collate,
            worker_init_fn=_ignore_interrupts,
            generator=torch.Generator(),  # or each pass would draw from the global random state
        )

    def read(self, requests: Iterable[list[ViewRequest]]) -> Iterator[T]:
        self._requests = requests
        yield from self._loader

    def start(self) -> None:
        """Start the workers now: later, other threads might hold locks that a new process would wait for forever."""
        for _ in self.read([]):
            pass

    def close(self) -> None:
        """Stop the workers."""
        iterator = self._loader._iterator
        if iterator is not None:
            workers = list(getattr(iterator, "_workers", ()))
            iterator._shutdown_workers()  # type: ignore[attr-defined]
            for worker in workers:
                if worker.is_alive():  # stuck, and deaf to signals: Python would wait for it at its end
                    worker.kill()
                    worker.join()
            self._loader._iterator = None


def available_cores() -> int:
    """Cores this process may use, which in a container or under a scheduler can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class _Forward:
    """A batch sampler that hands on whatever the loader was last asked for."""

    def __init__(self, loader: Loader[Any]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[list[ViewRequest]]:
        return iter(self.loader._requests)


def _ignore_interrupts(_: int) -> None:
    # A terminal or a scheduler signals the whole process group; only the main process may react, and ends the workers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
