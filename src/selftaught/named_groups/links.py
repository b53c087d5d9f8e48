"""Folders of links to the photos of groups."""

import re
from pathlib import Path

from selftaught.errors import SelftaughtError, printable
from selftaught.files import plain_path
from selftaught.named_groups.sorted_photos import SortedPhotos

LONGEST = 60
"""The most characters from a name in that of a link or of its folder: in Unicode, each may take 4 of 255 bytes."""


def make_links(place: Path, found: SortedPhotos) -> None:
    """Make a folder of links for each group; groups with the same name share one."""
    for index, group in enumerate(found.groups.tolist()):
        if group < 0:
            continue
        folder = place / re.sub(r'[\x00-\x1f/\\:*?"<>|]', "_", found.known.title(group))[:LONGEST].strip(". ")
        flat = found.images.files[index].replace("/", "__")
        link = folder / f"{index:06d}-{flat[-LONGEST:]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            link.symlink_to(plain_path(found.images.path(index)))
        except OSError as error:
            raise SelftaughtError(f"cannot make the link {printable(link)}: {error.strerror or error}") from None
