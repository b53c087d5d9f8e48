"""What is asked of a reader of images, and what it answers."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from selftaught.data.folder import ImageFolder

View = Literal["center", "squash", "random"]


class ViewRequest(NamedTuple):
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

    def read(self, batches: Iterable[list[ViewRequest]], /) -> Iterator[Batch]: ...

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        """Be told what will be read: ``images`` as random and squashed views, ``labeled`` as center views."""

    def compile(self, images: int) -> None:
        """Compile how views are made, if that gains anything, for batches of so many images."""

    def uncompile(self) -> None: ...

    @property
    def note(self) -> str | None:
        """What a user should know of how the images are read."""

    def close(self) -> None: ...
