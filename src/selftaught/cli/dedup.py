"""Find copies of one picture; show them, list them, write a script that moves them. Nothing is ever deleted."""

import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from selftaught.cli.model_use import embed_folder, load_whitened
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import ImageFolder, open_images
from selftaught.duplicates import (
    SAMPLE,
    Copy,
    CopyGroup,
    Duplicates,
    distances_of_known_copies,
    find_copies,
    leave_out_links,
)
from selftaught.errors import UsageError, counted, printable
from selftaught.files import check_output, fill_folder, plain_path, to_csv, write_atomically
from selftaught.report import PhotoGroup, Section, histogram, photo_groups, photo_of, write_gallery

TABLE, PAGE = "duplicates.csv", "duplicates.html"
SHOWN_GROUPS, SHOWN_COPIES, SHOWN_PAIRS = 300, 12, 9
"""The most groups, photos and pairs on the page; the table has all."""
COLUMNS = ("group", "rank", "path", "kind", "distance", "diameter", "width", "height", "bytes", "sharpness")

SCRIPT = """#!/bin/sh
# Moves every copy but the best of its group to a folder, which may be given as argument.
# Written by selftaught dedup; look through it, then run it with sh. Nothing is deleted or overwritten.
set -eu
moved=0
default=TARGET
target=${1:-$default}
move() { # the best copy, which must still be there; the copy to move; its place below the target
  if [ ! -e "$1" ]; then printf 'kept, because the best copy is gone: %s\\n' "$2" >&2
  elif [ ! -e "$2" ]; then printf 'not there: %s\\n' "$2" >&2
  elif [ -e "$target/$3" ]; then printf 'kept, because its place is taken: %s\\n' "$2" >&2
  else
    place=$target/$3
    mkdir -p -- "${place%/*}"
    mv -- "$2" "$place"
    moved=$((moved + 1))
  fi
}
"""


def dedup(
    use: ModelUse, source: str, out: Path, threshold: float | None, script: Path | None, allow_skipped: bool
) -> None:
    if threshold is not None and not 0 <= threshold < float("inf"):
        raise UsageError(f"the threshold must be a distance of 0 or more, but is {threshold}")
    images = open_images(source, "all", allow_skipped=allow_skipped)
    if script is not None and images.members is not None:
        raise UsageError(f"{printable(source)} lies in tar files: a script cannot move images out of them")
    distinct = leave_out_links(images)
    reporter = Reporter()
    with fill_folder(out) as place:
        if script is not None:
            check_output(script)
        if len(distinct) < len(images):
            reporter.say(f"left out {counted(len(images) - len(distinct), 'link')} to what is there already")
        embedder = load_whitened(use, distinct)
        images, vectors, _ = embed_folder(embedder, distinct, allow_skipped)
        with reporter.work("making test copies", min(SAMPLE, len(images))) as tell:
            known = distances_of_known_copies(embedder, images, vectors, advance=tell)
        with reporter.work("comparing files", len(images)) as tell:
            found = find_copies(images, vectors, known, threshold, advance=tell)
        write_atomically(place / TABLE, duplicates_table(found))
        write_duplicates_page(place / PAGE, found)
        if script is not None:
            write_atomically(script, moving_script(found, plain_path(out) / "moved"))
    print(summarize(found))
    print(f"threshold: {describe_threshold(found)}")
    print(f"page:  {printable(out / PAGE)}\ntable: {printable(out / TABLE)}")
    if script is not None:
        copies = counted(found.extra, "copy", "copies")
        print(f"script: {printable(script)} moves {copies} when you run it with sh; nothing was moved yet")


def summarize(found: Duplicates) -> str:
    """A sentence with the number of copies of each kind."""
    kinds = [copy.kind for group in found.groups for copy in group.copies[1:]]
    if not kinds:
        return f"No duplicates among {len(found.images)} photos."
    counts = [f"{kinds.count(kind)} {name}" for kind, name in KINDS.items() if kind in kinds]
    copies = "1 is a copy" if found.extra == 1 else f"{found.extra} are copies"
    return f"Among {len(found.images)} photos, {copies}, in {counted(len(found.groups), 'group')}: {', '.join(counts)}."


KINDS = {"same bytes": "with the same bytes", "same pixels": "with the same pixels", "near": "nearly the same"}


def describe_threshold(found: Duplicates) -> str:
    """The threshold and its reason; where there is none, how near copies were found all the same."""
    value = found.proposal.threshold
    if value is not None:
        return f"{value:.3g} ({found.proposal.reason})"
    near = any(copy.kind == "near" for group in found.groups for copy in group.copies)
    return f"none ({found.proposal.reason}){'; copies nearly the same were found by their pixels' if near else ''}"


def duplicates_table(found: Duplicates) -> str:
    """The content of duplicates.csv: one row per copy, the best of each group first."""
    rows: list[tuple[object, ...]] = [COLUMNS]
    for number, group in enumerate(found.groups, 1):
        for rank, copy in enumerate(group.copies, 1):
            seen = copy.picture
            distances = f"{copy.distance:.4f}", f"{group.diameter:.4f}"
            about = seen.width, seen.height, seen.bytes, f"{seen.sharpness:.1f}"
            rows.append((number, rank, found.images.files[copy.index], copy.kind, *distances, *about))
    return to_csv(rows)


def moving_script(found: Duplicates, target: Path) -> str:
    """A POSIX shell script that moves all copies except the best of each group; names may hold any characters."""
    lines = [SCRIPT.replace("TARGET", shlex.quote(str(target)))]
    root = plain_path(found.images.root)
    for number, group in enumerate(found.groups, 1):
        lines.append(f"# group {number}")
        best = shlex.quote(str(root / found.images.files[group.copies[0].index]))
        for copy in group.copies[1:]:
            file = found.images.files[copy.index]
            lines.append(f"move {best} {shlex.quote(str(root / file))} {shlex.quote(file)}")
    lines.append('printf \'%s moved to %s\\n\' "$moved" "$target"')
    return "\n".join(lines) + "\n"


def write_duplicates_page(path: Path, found: Duplicates) -> None:
    sections = [
        Section(
            "Where the threshold lies",
            "Gray: the distance of each photo to its nearest. Blue: distances of copies that were made of some "
            f"photos for this test (smaller, compressed, cropped, mirrored, with a watermark).\n\n"
            f"Threshold: {describe_threshold(found)}. --threshold sets one of your own.",
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
    write_gallery(path, f"Duplicates in {printable(found.images.root)}", summarize(found), sections)


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

    return [
        Section(heading, "", html=photo_groups(list(map(show, pairs)), pairs=True))
        for heading, pairs in sides
        if len(pairs)
    ]


def _group(images: ImageFolder, number: int, group: CopyGroup) -> PhotoGroup:
    def note(copy: Copy) -> str:
        what = {"best": "", "near": f"distance {copy.distance:.3f} · "}.get(copy.kind, f"{copy.kind} · ")
        return f"{what}{copy.picture.width}×{copy.picture.height} · {size(copy.picture.bytes)}"

    photos = [photo_of(images, c.index, note(c), c.kind == "best") for c in group.copies[:SHOWN_COPIES]]
    heading = f"Group {number} · {len(group.copies)} photos · diameter {group.diameter:.3f}"
    return PhotoGroup(heading, photos, more=len(group.copies) - len(photos))


def size(number: int) -> str:
    """Bytes as a person writes them.

    >>> size(900), size(52_300), size(3_400_000)
    ('900 B', '52 kB', '3.4 MB')
    """
    if number < 1000:
        return f"{number} B"
    return f"{number / 1000:.0f} kB" if number < 1_000_000 else f"{number / 1_000_000:.1f} MB"
