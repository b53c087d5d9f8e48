"""What the methods have in common that label images by k-means."""

from dataclasses import dataclass
from typing import Annotated

from selftaught.recipes import Settings, Within


@dataclass(frozen=True)
class ClusterSettings(Settings):
    """The settings of a method that labels images by k-means."""

    clusters: Annotated[int | None, Within(2)] = None
    """How many clusters there are."""
