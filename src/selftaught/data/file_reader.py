"""Image files → batches of uint8 views, every file read again for every view."""

from collections.abc import Iterable, Iterator
from itertools import tee

import torch
from torch import Tensor
from torch.utils.data import Dataset

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
        self._loader = Loader(_Decoder(views), _collate, workers, pin_memory=self.device.type == "cuda")

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:  # noqa: ARG002
        self._loader.start()

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        asked, noted = tee(batches)
        for requests, batch in zip(noted, self._loader.read(asked), strict=True):
            here = batch._replace(images=batch.images.to(self.device, non_blocking=True))
            yield augment(here, requests, self.views)

    def close(self) -> None:
        self._loader.close()


def find_unreadable(images: ImageFolder, workers: int = 0, advance: Advance = lambda _: None) -> list[Skipped]:
    """Read every image once; returns those that cannot be read, with the reasons."""
    reader = FileReader(Views(1, 1, 1), workers)
    requests = (ViewRequest(images.path(i), "check") for i in range(len(images)))
    batches = reader.read(in_batches(requests, CHECKED_AT_ONCE))
    skipped: list[Skipped] = []
    try:
        for start, batch in zip(range(0, len(images), CHECKED_AT_ONCE), batches, strict=True):
            skipped += [Skipped(images.files[start + position], reason) for position, reason in batch.failures]
            advance(len(batch.positions) + len(batch.failures))
    finally:
        reader.close()
    return skipped


class _Decoder(Dataset[Tensor | str]):
    def __init__(self, views: Views) -> None:
        self.views = views

    def __getitem__(self, request: ViewRequest) -> Tensor | str:
        try:
            image = open_image(request.path)
            if request.view == "check":
                return torch.empty(0, dtype=torch.uint8)
            return self.views(image, request.view, request.seed)
        except ImageError as error:
            return str(error)


def _collate(results: list[Tensor | str]) -> Batch:
    good = [(i, result) for i, result in enumerate(results) if isinstance(result, Tensor)]
    images = torch.stack([image for _, image in good]) if good else torch.empty(0, 1, 3, 1, 1, dtype=torch.uint8)
    return Batch(
        images=images,
        positions=[i for i, _ in good],
        failures=[(i, result) for i, result in enumerate(results) if isinstance(result, str)],
    )
