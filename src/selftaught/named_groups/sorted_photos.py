"""Photos in groups: in new ones, or in those that have names already."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from selftaught.data import ImageFolder
from selftaught.errors import SelftaughtError, counted, printable
from selftaught.files import plain_path
from selftaught.named_groups.table import NamedGroups
from selftaught.networks import fit_whitening
from selftaught.retrieval import find_centers, find_groups

WHITENED = 256
"""The number of dimensions of whitened vectors."""
LINK_NAME = 60
"""The most characters from a name in that of a link or of its folder: in Unicode, each may take 4 of 255 bytes."""


@dataclass(frozen=True)
class SortedPhotos:
    """n photos and the group of each: its number, -1 for none, and the distance to its center."""

    images: ImageFolder
    known: NamedGroups
    groups: Tensor
    distances: Tensor

    def rows(self) -> list[list[str]]:
        """The table of photos, with its header first."""
        rows = [["path", "group", "name", "distance"]]
        for file, group, distance in zip(self.images.files, self.groups.tolist(), self.distances.tolist(), strict=True):
            near = f"{distance:.4f}" if distance < torch.inf else ""
            rows.append([file, *([str(group + 1), self.known.names[group], near] if group >= 0 else ["", "", near])])
        return rows

    def summarize(self) -> str:
        """A sentence with the number of photos in groups."""
        inside = self.groups[self.groups >= 0]
        used = counted(len(inside.unique()), "group")
        total = len(self.groups)
        return f"{len(inside)} of {total} photos are in {used}, {total - len(inside)} in none."


def find_new_groups(images: ImageFolder, vectors: Tensor, smallest: int, whiten: bool, model: str) -> SortedPhotos:
    """Group photos, without a given number of groups; ``whiten``: by half-whitened vectors."""
    groups = find_groups(_whiten(vectors) if whiten else vectors, smallest)
    centers = find_centers(vectors, groups)
    sizes = torch.bincount(groups[groups >= 0], minlength=len(centers.means)).tolist()
    distances = torch.full((len(groups),), torch.inf)
    inside = groups >= 0
    distances[inside] = torch.linalg.vector_norm(vectors[inside] - centers.means[groups[inside]], dim=1)
    return SortedPhotos(images, NamedGroups(("",) * len(sizes), tuple(sizes), centers, model), groups, distances)


def sort_photos(images: ImageFolder, vectors: Tensor, known: NamedGroups) -> SortedPhotos:
    """Sort photos into groups that were found before."""
    return SortedPhotos(images, known, *known.centers.assign(vectors))


def make_links(place: Path, found: SortedPhotos) -> None:
    """Make a folder of links for each group; groups with the same name share one."""
    for index, group in enumerate(found.groups.tolist()):
        if group < 0:
            continue
        title = found.known.names[group] or f"group {group + 1}"
        folder = place / re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", title)[:LINK_NAME].strip(". ")
        flat = found.images.files[index].replace("/", "__")
        link = folder / f"{index:06d}-{flat[-LINK_NAME:]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(plain_path(found.images.path(index)))
        except OSError as error:
            raise SelftaughtError(f"cannot make the link {printable(link)}: {error.strerror or error}") from None


def _whiten(vectors: Tensor) -> Tensor:
    try:
        weight, bias = fit_whitening(vectors, min(WHITENED, vectors.shape[1]))
    except ValueError as error:
        raise SelftaughtError(f"cannot whiten on these images: {error}") from None
    return normalize(vectors @ weight.T + bias, dim=1)
