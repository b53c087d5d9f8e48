"""Image files → batches of uint8 views, every file read again for every view."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import tee

import torch
from torch import Tensor

from selftaught.data.augment import augment
from selftaught.data.embed_files import Advance, in_batches
from selftaught.data.folder import ImageFolder, Skipped
from selftaught.data.images import open_image
from selftaught.data.loader import Loader
from selftaught.data.requests import Batch, ImageReader, ViewRequest
from selftaught.data.views import Views
from selftaught.errors import ImageError

CHECKED_AT_ONCE = 32


class FileReader(ImageReader):
    """Reads every file again for every view of it: the reference for the faster :class:`CachedReader`."""

    def __init__(self, views: Views, workers: int = 0, device: torch.device | str = "cpu") -> None:
        self.views, self.device = views, torch.device(device)
        self._loader = Loader(partial(_make_views, views), workers, pin_memory=self.device.type == "cuda")

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:  # noqa: ARG002
        self._loader.start()

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        asked, noted = tee(batches)
        for requests, batch in zip(noted, self._loader.read(asked), strict=True):
            here = batch._replace(images=batch.images.to(self.device, non_blocking=True))
            yield augment(here, requests, self.views.augmentations)

    def close(self) -> None:
        self._loader.close()


def find_unreadable(images: ImageFolder, workers: int = 0, advance: Advance = lambda _: None) -> list[Skipped]:
    """Read every image once; returns those that cannot be read, with the reasons."""
    loader = Loader(_find_faults, workers)
    files, skipped = iter(images.files), list[Skipped]()
    try:
        for reasons in loader.read(in_batches(map(images.path, range(len(images))), CHECKED_AT_ONCE)):
            named = zip(reasons, files, strict=False)
            skipped += [Skipped(file, reason) for reason, file in named if reason is not None]
            advance(len(reasons))
    finally:
        loader.close()
    return skipped


def _find_faults(paths: list[str]) -> list[str | None]:
    """For each file the reason why it cannot be read, or None."""
    faults: list[str | None] = [None] * len(paths)
    for position, path in enumerate(paths):
        try:
            open_image(path)
        except ImageError as error:
            faults[position] = str(error)
    return faults


def _make_views(views: Views, requests: list[ViewRequest]) -> Batch:
    images: list[Tensor] = []
    batch = Batch(torch.empty(0, 1, 3, 1, 1, dtype=torch.uint8), [], [])
    for position, request in enumerate(requests):
        try:
            images.append(views(open_image(request.path), request.view, request.seed))
            batch.positions.append(position)
        except ImageError as error:
            batch.failures.append((position, str(error)))
    return batch._replace(images=torch.stack(images)) if images else batch
