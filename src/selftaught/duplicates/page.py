"""The page of copies."""

from collections.abc import Sequence
from itertools import filterfalse, islice
from pathlib import Path

from rich.filesize import decimal

from selftaught.duplicates.copies import Copy, Duplicates
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
    if found.groups:
        more = len(found.groups) - SHOWN_GROUPS
        note = f" The first {SHOWN_GROUPS} are shown; {more} more are in duplicates.csv." if more > 0 else ""
        text = f"The best copy first: most pixels, in color, not blurred, largest file. A guess: look yourself.{note}"
        groups = show_groups(found, SHOWN_GROUPS, SHOWN_COPIES)
        sections.append(Section("Groups", text, html=photo_groups(groups)))
    write_gallery(path, f"Duplicates in {printable(found.images.root)}", found.summarize(), sections)


def _either_side(found: Duplicates) -> list[Section]:
    """Pairs just under the threshold, and pairs just above it that are in no group together for another reason."""
    group = {copy.index: number for number, group in enumerate(found.groups) for copy in group.copies}
    limit = -1.0 if found.proposal.threshold is None else found.proposal.threshold
    under = int((found.pairs.distance <= limit).sum())
    first, second = found.pairs.first, found.pairs.second
    below, above = range(under)[::-1], range(under, len(found.pairs))

    def in_one_group(i: int) -> bool:
        return group.get(int(first[i]), -1) == group.get(int(second[i]), -2)

    sides: list[tuple[str, Sequence[int]]] = [
        ("Just under the threshold: counted as copies", list(islice(filter(in_one_group, below), SHOWN_PAIRS))),
        ("Just above the threshold: not counted", list(islice(filterfalse(in_one_group, above), SHOWN_PAIRS))),
    ]
    if found.proposal.threshold is None:
        sides = [("The nearest pairs: not counted", sides[1][1])]

    def show(i: int) -> PhotoGroup:
        photos = [photo_of(found.images, int(side[i])) for side in (first, second)]
        return PhotoGroup(f"distance {found.pairs.distance[i]:.3f}", photos)

    return [Section(heading, "", html=photo_groups(list(map(show, pairs)))) for heading, pairs in sides if len(pairs)]


def show_groups(found: Duplicates, most: int, most_copies: int) -> list[PhotoGroup]:
    """The first groups as a page shows them, each with its first copies."""

    def note(copy: Copy) -> str:
        further = f"same fingerprint, distance {copy.distance:.3f}: not moved · "
        what = {"best": "", "near": f"distance {copy.distance:.3f} · ", "fingerprint": further}.get(
            copy.kind, f"{copy.kind} · "
        )
        return f"{what}{copy.picture.width}×{copy.picture.height} · {decimal(copy.picture.bytes)}"

    groups = []
    for number, group in enumerate(found.groups[:most], 1):
        photos = [photo_of(found.images, c.index, note(c), c.kind == "best") for c in group.copies[:most_copies]]
        others = [printable(found.images.files[copy.index]) for copy in group.copies[most_copies:]]
        many = "" if len(group.copies) == 2 else f"{len(group.copies)} photos · "  # a pair's heading fits above it
        heading = f"Group {number} · {many}diameter {group.diameter:.3f}"
        groups.append(PhotoGroup(heading, photos, len(others), others=others))
    return groups
