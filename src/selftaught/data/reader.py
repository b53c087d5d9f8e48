"""Image files → batches of uint8 views, decoded by worker processes that serve every pass of a run."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from selftaught.data.folder import ImageFolder, Skipped
from selftaught.data.images import open_image
from selftaught.data.views import View, Views
from selftaught.errors import ImageError

T = TypeVar("T")
CHECKED_AT_ONCE = 32


class Request(NamedTuple):
    path: str
    view: View | Literal["check"]
    """What is wanted of the file; "check" reads it and gives nothing back."""
    seed: int = 0


class Batch(NamedTuple):
    """The views of one batch of requests; what could not be read is left out of ``images`` and named."""

    images: Tensor
    """uint8, n×views×3×H×W."""
    positions: list[int]
    """Which request each row of ``images`` answers."""
    failures: list[tuple[int, str]]
    """(which request, why) for the rest."""


class ImageReader(Protocol):
    """Whatever answers batches of requests in order."""

    def read(self, batches: Iterable[list[Request]], /) -> Iterator[Batch]: ...

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        """Be told what will be read: ``images`` as random and squashed views, ``labeled`` as center views."""

    def close(self) -> None: ...


class Loader(Generic[T]):
    """Hands batches of requests to a dataset, in order. Workers start at the first one and stay until :meth:`close`."""

    def __init__(
        self, dataset: Dataset[Any], collate: Callable[[list[Any]], T], workers: int, pin_memory: bool = False
    ) -> None:
        self._requests: Iterable[list[Request]] = ()
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

    def read(self, requests: Iterable[list[Request]]) -> Iterator[T]:
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


class Reader:
    """Reads every file anew for every view of it: the reference for the faster :class:`CachedReader`."""

    def __init__(self, views: Views, workers: int = 0, pin_memory: bool = False) -> None:
        self._loader = Loader(_Decoder(views), _collate, workers, pin_memory)

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:  # noqa: ARG002
        self._loader.start()

    def read(self, batches: Iterable[list[Request]]) -> Iterator[Batch]:
        return self._loader.read(batches)

    def close(self) -> None:
        self._loader.close()


def unreadable(images: ImageFolder, workers: int = 0, advance: Callable[[int], None] = lambda _: None) -> list[Skipped]:
    """Read every image once: those that cannot be, and why."""
    reader = Reader(Views(1, 1, 1), workers)
    starts = range(0, len(images), CHECKED_AT_ONCE)
    batches = (
        [Request(images.path(i), "check") for i in range(s, min(s + CHECKED_AT_ONCE, len(images)))] for s in starts
    )
    skipped: list[Skipped] = []
    try:
        for start, batch in zip(starts, reader.read(batches), strict=True):
            skipped += [Skipped(images.files[start + position], reason) for position, reason in batch.failures]
            advance(len(batch.positions) + len(batch.failures))
    finally:
        reader.close()
    return skipped


def available_cores() -> int:
    """Cores this process may use, which in a container or under a scheduler can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


class _Decoder(Dataset[Tensor | str]):
    def __init__(self, views: Views) -> None:
        self.views = views

    def __getitem__(self, request: Request) -> Tensor | str:
        try:
            image = open_image(request.path)
            if request.view == "check":
                return torch.empty(0, dtype=torch.uint8)
            return self.views(image, request.view, request.seed)
        except ImageError as error:
            return str(error)


class _Forward:
    """A batch sampler that hands on whatever the loader was last asked for."""

    def __init__(self, loader: Loader[Any]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[list[Request]]:
        return iter(self.loader._requests)


def _collate(results: list[Tensor | str]) -> Batch:
    good = [(i, result) for i, result in enumerate(results) if isinstance(result, Tensor)]
    images = torch.stack([image for _, image in good]) if good else torch.empty(0, 1, 3, 1, 1, dtype=torch.uint8)
    return Batch(
        images=images,
        positions=[i for i, _ in good],
        failures=[(i, result) for i, result in enumerate(results) if isinstance(result, str)],
    )


def _ignore_interrupts(_: int) -> None:
    # A terminal or a scheduler signals the whole process group; only the main process may react, and ends the workers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
