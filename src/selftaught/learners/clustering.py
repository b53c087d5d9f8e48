"""The settings that methods with k-means labels share."""

from dataclasses import dataclass
from typing import Annotated

from selftaught.recipes import Settings, Within


@dataclass(frozen=True)
class ClusterSettings(Settings):
    """The settings of a method that labels images by k-means."""

    clusters: Annotated[int | None, Within(2)] = None
    """The number of clusters."""
