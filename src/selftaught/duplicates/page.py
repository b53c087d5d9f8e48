"""The page of copies."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from selftaught.data import ImageFolder
from selftaught.duplicates.copies import Copy, CopyGroup, Duplicates
from selftaught.errors import printable
from selftaught.report import PhotoGroup, Section, histogram, photo_groups, photo_of, write_gallery

SHOWN_GROUPS, SHOWN_COPIES, SHOWN_PAIRS = 300, 12, 9
"""The most groups, photos and pairs on the page; the table has all."""


def write_duplicates_page(path: Path, found: Duplicates) -> None:
    sections = [
        Section(
            "Where the threshold lies",
            "Gray: the distance of each photo to its nearest. Blue: distances of copies that were made of some "
            f"photos for this test (smaller, compressed, cropped, mirrored, with a watermark).\n\n"
            f"Threshold: {found.describe_threshold()}. --threshold sets one of your own.",
            html=histogram(found.nearest.tolist(), found.known.tolist(), found.proposal.threshold),
        ),
        *_either_side(found),
    ]
    shown = found.groups[:SHOWN_GROUPS]
    if shown:
        more = len(found.groups) - len(shown)
        note = f" The first {len(shown)} are shown; {more} more are in duplicates.csv." if more else ""
        text = f"The best copy first: largest, in color, sharpest. A watermark looks sharp, so look yourself.{note}"
        groups = [_group(found.images, number, group) for number, group in enumerate(shown, 1)]
        sections.append(Section("Groups", text, html=photo_groups(groups)))
    write_gallery(path, f"Duplicates in {printable(found.images.root)}", found.summarize(), sections)


def _either_side(found: Duplicates) -> list[Section]:
    """Pairs just under the threshold, and pairs just above it that are in no group together for another reason."""
    group = {copy.index: number for number, group in enumerate(found.groups) for copy in group.copies}
    limit = -1.0 if found.proposal.threshold is None else found.proposal.threshold
    under = int((found.pairs.distance <= limit).sum())
    first, second = found.pairs.first, found.pairs.second
    above = range(under, len(found.pairs))
    apart = (i for i in above if group.get(int(first[i]), -1) != group.get(int(second[i]), -2))
    sides: list[tuple[str, Sequence[int]]] = [
        ("Just under the threshold: counted as copies", range(max(0, under - SHOWN_PAIRS), under)[::-1]),
        ("Just above the threshold: not counted", list(islice(apart, SHOWN_PAIRS))),
    ]
    if found.proposal.threshold is None:
        sides = [("The nearest pairs: not counted", sides[1][1])]

    def show(i: int) -> PhotoGroup:
        photos = [photo_of(found.images, int(side[i])) for side in (first, second)]
        return PhotoGroup(f"distance {found.pairs.distance[i]:.3f}", photos)

    return [Section(heading, "", html=photo_groups(list(map(show, pairs)))) for heading, pairs in sides if len(pairs)]


def _group(images: ImageFolder, number: int, group: CopyGroup) -> PhotoGroup:
    def note(copy: Copy) -> str:
        what = {"best": "", "near": f"distance {copy.distance:.3f} · "}.get(copy.kind, f"{copy.kind} · ")
        return f"{what}{copy.picture.width}×{copy.picture.height} · {size(copy.picture.bytes)}"

    photos = [photo_of(images, c.index, note(c), c.kind == "best") for c in group.copies[:SHOWN_COPIES]]
    many = "" if len(group.copies) == 2 else f"{len(group.copies)} photos · "  # a pair's heading fits above it
    heading = f"Group {number} · {many}diameter {group.diameter:.3f}"
    return PhotoGroup(heading, photos, more=len(group.copies) - len(photos))


def size(number: int) -> str:
    """Bytes as a person writes them.

    >>> size(900), size(52_300), size(3_400_000)
    ('900 B', '52 kB', '3.4 MB')
    """
    if number < 1000:
        return f"{number} B"
    return f"{number / 1000:.0f} kB" if number < 1_000_000 else f"{number / 1_000_000:.1f} MB"
