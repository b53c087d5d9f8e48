"""The labeled images of the figures, and the choice of those to show."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from selftaught.data import ImageFolder
from selftaught.errors import SelftaughtError, printable


def pick_middles(count: int, of: int) -> list[int]:
    """The middles of ``count`` equal parts of the numbers below ``of``; all numbers if there are no more.

    Example:
        >>> pick_middles(3, 12)
        [2, 6, 10]
    """
    count = min(count, of)
    return [(2 * i + 1) * of // (2 * count) for i in range(count)]


@dataclass(frozen=True)
class LabeledImages:
    """Images with labels; nothing here depends on how well a model does on them."""

    images: ImageFolder

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def labels(self) -> Sequence[str]:
        return self.images.labels()

    @cached_property
    def classes(self) -> Tensor:
        """n, the labels as numbers."""
        return torch.tensor(self.images.classes())

    @cached_property
    def paths(self) -> list[Path]:
        return list(map(Path, self.images.paths()))

    @cached_property
    def _sizes(self) -> Counter[str]:
        return Counter(self.labels)

    def with_company(self, indices: Sequence[int]) -> list[int]:
        """The images whose class has another image: only for these a retrieval can be right."""
        return [i for i in indices if self._sizes[self.labels[i]] > 1]

    def queries(self, count: int) -> list[int]:
        """Evenly spaced images, each of a class with another image."""
        able = self.with_company(range(len(self)))
        return [able[i] for i in pick_middles(count, len(able))]

    def sample(self, limit: int, fewest_classes: int) -> list[int]:
        """At most about ``limit`` images: whole classes, evenly spaced, or the first images of large ones."""
        names = sorted(self._sizes)
        fitting = limit * len(names) // len(self)
        chosen = pick_middles(max(1, fewest_classes, fitting), len(names))
        room = {names[i]: max(1, limit // len(chosen)) for i in chosen}
        picked = []
        for index, label in enumerate(self.labels):
            if room.get(label, 0) > 0:
                room[label] -= 1
                picked.append(index)
        return picked

    def check(self) -> None:
        """Raise an error if there are no two classes to tell apart, or no class with two images."""
        sizes = self._sizes
        if len(sizes) < 2 or max(sizes.values()) < 2:
            raise SelftaughtError(
                f"figures need at least two classes, one of them with two images, but {printable(self.images.root)} "
                f"has {len(self)} images of {len(sizes)} classes"
            )
