"""Copies of one picture in a collection: equal files, equal pixels, and pictures that are nearly equal to a model."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from selftaught.data import Advance, ImageFolder, Skipped, open_image, pick_evenly
from selftaught.duplicates.pictures import (
    ALTERATIONS,
    Picture,
    best_first,
    examine,
    find_same_bytes,
    find_same_files,
    hash_picture,
)
from selftaught.embedder import Embedder
from selftaught.errors import ImageError, SelftaughtError, counted, printable
from selftaught.retrieval import Pairs, Proposal, connect, diameter, find_neighbors, members, propose_threshold

KINDS = {"same bytes": "with the same bytes", "same pixels": "with the same pixels", "near": "nearly the same"}
KINDS |= {"fingerprint": "only with about the same fingerprint, which a script leaves where they are"}
COLUMNS = ("group", "rank", "path", "kind", "distance", "diameter", "width", "height", "bytes", "sharpness")
SAMPLE = 40
"""The number of photos that are copied on purpose, to learn how near copies are."""

BITS = 4
"""Bits of 64 by which fingerprints of copies may differ."""
LIKELY = 0.99
"""Photos with about the same fingerprint are copies if they are no further apart than this share of known copies."""
EQUAL = 1e-3
"""The distance between vectors of equal pixels is less than this share of the distance between known copies."""
ROUNDING = 1e-5
"""The share by which a distance may exceed the threshold when it is computed in another way."""


@dataclass(frozen=True)
class Copy:
    """One photo of a group; ``kind`` and ``distance`` say how it relates to the best one."""

    index: int
    kind: str
    distance: float
    picture: Picture


@dataclass(frozen=True)
class CopyGroup:
    """Copies of one picture, the best first; ``diameter``: the largest distance between two of them."""

    copies: tuple[Copy, ...]
    diameter: float


@dataclass(frozen=True)
class Duplicates:
    """The copies found among images; indices refer to ``images``."""

    images: ImageFolder
    groups: tuple[CopyGroup, ...]
    proposal: Proposal
    pairs: Pairs
    """Mutual neighbors among images with different bytes."""
    nearest: Tensor
    """The distance of each such image to its nearest one."""
    known: Tensor
    """Distances of copies made on purpose to their originals."""

    @property
    def kinds(self) -> list[str]:
        """How each image that is a copy of a better one relates to it."""
        return [copy.kind for group in self.groups for copy in group.copies[1:]]

    @property
    def moved(self) -> int:
        """The number of images that a script moves: further copies than the threshold stay."""
        return self.extra - self.kinds.count("fingerprint")

    @property
    def extra(self) -> int:
        """The number of images that are a copy of a better one."""
        return len(self.kinds)

    def summarize(self) -> str:
        """A sentence with the number of copies of each kind."""
        kinds = self.kinds
        if not kinds:
            return f"No duplicates among {counted(len(self.images), 'photo')}."
        counts = [f"{kinds.count(kind)} {name}" for kind, name in KINDS.items() if kind in kinds]
        copies = counted(self.extra, "is a copy", "are copies")
        groups = counted(len(self.groups), "group")
        return f"Among {counted(len(self.images), 'photo')}, {copies}, in {groups}: {', '.join(counts)}."

    def describe_threshold(self) -> str:
        """The threshold and its reason; where there is none, how near copies were found all the same."""
        value, reason = self.proposal.threshold, self.proposal.reason
        if value is not None:
            return f"{value:.3g} ({reason})"
        return f"none ({reason}){'; copies were found by their fingerprints' if 'fingerprint' in self.kinds else ''}"

    def rows(self) -> list[tuple[object, ...]]:
        """The table of copies, with its header first; the best of each group comes first."""
        rows: list[tuple[object, ...]] = [COLUMNS]
        for number, group in enumerate(self.groups, 1):
            for rank, copy in enumerate(group.copies, 1):
                seen = copy.picture
                distances = f"{copy.distance:.4f}", f"{group.diameter:.4f}"
                about = seen.width, seen.height, seen.bytes, f"{seen.sharpness:.1f}"
                rows.append((number, rank, self.images.files[copy.index], copy.kind, *distances, *about))
        return rows


def leave_out_links(images: ImageFolder) -> ImageFolder:
    """The images without links to a file that is already among them."""
    first = find_same_files(images.paths())
    links = [Skipped(images.files[i], "a link") for i, j in enumerate(first) if i != j]
    return images.without(links)


def find_copies(
    images: ImageFolder,
    vectors: Tensor,
    known: Tensor,
    threshold: float | None = None,
    advance: Advance = lambda _: None,
) -> Duplicates:
    """Group the copies among images.

    Args:
        images: n readable images.
        vectors: their vectors, n×d.
        known: distances of copies made on purpose, as :func:`distances_of_known_copies` returns them.
        threshold: how near near-duplicates are; proposed from the distances if it is not given.
        advance: called with how many more of the images have been compared.
    """
    same = torch.tensor(find_same_bytes(images.paths()))
    rows = (same == torch.arange(len(same))).nonzero()[:, 0]
    advance(len(images) - len(rows))
    near = find_neighbors(vectors[rows])
    proposal = propose_threshold(near, known) if threshold is None else Proposal(threshold, "as asked for")
    pairs = near.mutual_pairs()
    # Without a threshold, copies are those whose distance only rounding explains.
    limit = EQUAL * known.median().item() if proposal.threshold is None else proposal.threshold
    copies = pairs.under(limit)
    alike: dict[int, set[int]] = defaultdict(set)
    if threshold is None:
        prints = _alike([images.path(i) for i in rows.tolist()], vectors[rows], known, advance)
        copies = Pairs(*(torch.cat(both) for both in zip(astuple(copies), astuple(prints), strict=True)))
        for first, second in zip(rows[prints.first].tolist(), rows[prints.second].tolist(), strict=True):
            alike[first].add(second)
            alike[second].add(first)
    else:
        advance(len(rows))
    together = connect(len(rows), copies)
    place = torch.empty(len(same), dtype=torch.long)
    place[rows] = together
    found = [group for part in members(place[same]) for group in _split(images, vectors, part, same, alike, limit)]
    groups = sorted(found, key=lambda group: -len(group.copies))
    pairs = Pairs(rows[pairs.first], rows[pairs.second], pairs.distance)
    nearest = near.distances[:, :1].flatten()
    return Duplicates(images, tuple(groups), proposal, pairs, nearest, known)


def distances_of_known_copies(
    embedder: Embedder,
    images: ImageFolder,
    vectors: Tensor,
    sample: int = SAMPLE,
    advance: Advance = lambda _: None,
) -> Tensor:
    """Distances between photos, evenly spread over the collection, and copies of them that are made on purpose.

    ``advance`` is called with how many more of the ``sample`` photos have been copied.
    """
    parts = []
    for row in pick_evenly(len(images), sample):
        with suppress(ImageError):  # gone since it was embedded
            original = open_image(images.path(row))
            copies = embedder.encode([alter(original) for alter in ALTERATIONS.values()])
            parts.append(torch.linalg.vector_norm(copies - vectors[row], dim=1))
        advance(1)
    if not parts:
        raise SelftaughtError(f"the photos in {printable(images.root)} can no longer be read: look what became of them")
    return torch.cat(parts)


def _alike(paths: Sequence[str], vectors: Tensor, known: Tensor, advance: Advance) -> Pairs:
    """Mutual neighbors by fingerprint that are also as near as known copies by the model's vectors."""
    prints = torch.zeros(len(paths), 64)
    for row, path in enumerate(paths):
        try:
            prints[row] = torch.from_numpy(hash_picture(path))
        except ImageError:  # gone since it was embedded
            prints[row] = torch.inf
        advance(1)
    readable = prints.isfinite().all(1).nonzero()[:, 0]
    pairs = find_neighbors(prints[readable]).mutual_pairs().under(2 * BITS**0.5 + 1e-3)  # other bits are 2 apart
    first, second = readable[pairs.first], readable[pairs.second]
    distance = torch.linalg.vector_norm(vectors[first] - vectors[second], dim=1)
    near = distance <= known.quantile(LIKELY).item()
    return Pairs(first[near], second[near], distance[near])


def _split(
    images: ImageFolder, vectors: Tensor, rows: Tensor, same: Tensor, alike: Mapping[int, set[int]], limit: float
) -> list[CopyGroup]:
    """Groups of copies among connected images: the best with its own copies, then the same with those that are left.

    Its own copies are those within ``limit`` of it or with about its fingerprint (``alike``). Others, which only a
    chain of pairs connects with it, may look different. Images with equal pixels stay together; one without copies is
    in no group.
    """
    pictures: dict[int, Picture] = {}
    for row in rows.tolist():
        with suppress(ImageError):  # gone since it was embedded
            pictures[row] = examine(images.path(row))
    groups = []
    while len(pictures) > 1:
        ordered = best_first(pictures, images.files)
        best = ordered[0]
        distances = torch.linalg.vector_norm(vectors[ordered] - vectors[best], dim=1).tolist()
        kinds = {}
        for row, distance in zip(ordered, distances, strict=True):
            if row == best:
                kinds[row] = "best"
            elif same[row] == same[best]:
                kinds[row] = "same bytes"
            elif pictures[row].pixels == pictures[best].pixels:
                kinds[row] = "same pixels"
            elif distance <= (1 + ROUNDING) * limit:
                kinds[row] = "near"
            elif int(same[row]) in alike[int(same[best])]:
                kinds[row] = "fingerprint"
        apart = {seen.pixels for row, seen in pictures.items() if row not in kinds}
        copies = [
            Copy(row, kinds[row], distance, pictures[row])
            for row, distance in zip(ordered, distances, strict=True)
            if pictures[row].pixels not in apart
        ]
        for copy in copies:
            del pictures[copy.index]
        if len(copies) > 1:
            groups.append(CopyGroup(tuple(copies), diameter(vectors[[copy.index for copy in copies]])))
    return groups
