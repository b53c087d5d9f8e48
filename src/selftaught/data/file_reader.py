"""Image files → batches of uint8 views, every file read again for every view."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import tee

import torch
from torch import Tensor

from selftaught.data.augment import augment
from selftaught.data.folder import ImageFolder
from selftaught.data.images import open_image
from selftaught.data.loader import Loader
from selftaught.data.requests import Batch, ImageReader, ViewRequest
from selftaught.data.views import Views
from selftaught.errors import ImageError


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
            yield augment(here, requests, self.views.color)

    def close(self) -> None:
        self._loader.close()


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
