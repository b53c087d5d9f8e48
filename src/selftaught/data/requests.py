"""Requests to a reader of images, and its answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from torch import Tensor

from selftaught.data.folder import ImageFolder

View = Literal["center", "squash", "random"]
Failures = list[tuple[int, str]]
"""(position, reason) for files that cannot be read."""


class ViewRequest(NamedTuple):
    """Asks for a view of a file; the seed decides on a random one."""

    path: str
    view: View
    seed: int = 0


class Batch(NamedTuple):
    """The views of one batch of requests; files that cannot be read are in ``failures``, not in ``images``."""

    images: Tensor
    """uint8, n×views×3×H×W."""
    positions: list[int]
    """The request that each row of ``images`` answers."""
    failures: Failures
    """(request, reason) for the others."""


class ImageReader(ABC):
    """Answers batches of requests in order."""

    @abstractmethod
    def read(self, batches: Iterable[list[ViewRequest]], /) -> Iterator[Batch]: ...

    @abstractmethod
    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        """Prepare to read ``images`` as random and squashed views, and ``labeled`` as center views."""

    @abstractmethod
    def close(self) -> None: ...

    def compile(self, images: int) -> None:  # noqa: B027, most readers have nothing to compile
        """Compile the making of views for batches of ``images`` images, if that saves time."""

    def uncompile(self) -> None:  # noqa: B027
        """Undo :meth:`compile`."""

    @property
    def note(self) -> str | None:
        """A note for the user on how the images are read, if there is one."""
        return None
