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
        self._loader = Loader(partial(_make_views, views), _collate, workers, pin_memory=self.device.type == "cuda")

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
    loader = Loader(_find_fault, list, workers)
    files, skipped = iter(images.files), list[Skipped]()
    try:
        for reasons in loader.read(in_batches(map(images.path, range(len(images))), CHECKED_AT_ONCE)):
            named = zip(reasons, files, strict=False)
            skipped += [Skipped(file, reason) for reason, file in named if reason is not None]
            advance(len(reasons))
    finally:
        loader.close()
    return skipped


def _find_fault(path: str) -> str | None:
    """The reason why a file cannot be read, if it cannot."""
    try:
        open_image(path)
    except ImageError as error:
        return str(error)
    return None


def _make_views(views: Views, request: ViewRequest) -> Tensor | str:
    """The views of a file, or the reason why it cannot be read."""
    try:
        return views(open_image(request.path), request.view, request.seed)
    except ImageError as error:
        return str(error)


def _collate(results: list[Tensor | str]) -> Batch:
    positions = [i for i, result in enumerate(results) if isinstance(result, Tensor)]
    images = [result for result in results if isinstance(result, Tensor)]
    stacked = torch.stack(images) if images else torch.empty(0, 1, 3, 1, 1, dtype=torch.uint8)
    return Batch(stacked, positions, [(i, result) for i, result in enumerate(results) if isinstance(result, str)])
