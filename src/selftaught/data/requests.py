"""Requests to a reader of images, and its answers."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from selftaught.data.folder import ImageFolder

View = Literal["center", "squash", "random"]


class ViewRequest(NamedTuple):
    path: str
    view: View | Literal["check"]
    """The view to make of the file; "check" reads it and gives nothing back."""
    seed: int = 0


class Batch(NamedTuple):
    """The views of one batch of requests; files that cannot be read are in ``failures``, not in ``images``."""

    images: Tensor
    """uint8, n×views×3×H×W."""
    positions: list[int]
    """The request that each row of ``images`` answers."""
    failures: list[tuple[int, str]]
    """(request, reason) for the others."""


class ImageReader(Protocol):
    """Answers batches of requests in order."""

    def read(self, batches: Iterable[list[ViewRequest]], /) -> Iterator[Batch]: ...

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        """Prepare to read ``images`` as random and squashed views, and ``labeled`` as center views."""

    def compile(self, images: int) -> None:
        """Compile the making of views for batches of ``images`` images, if that saves time."""

    def uncompile(self) -> None: ...

    @property
    def note(self) -> str | None:
        """A note for the user on how the images are read, if there is one."""

    def close(self) -> None: ...
