"""The page of groups, with fields for their names."""

from pathlib import Path

from selftaught.data import pick_evenly
from selftaught.errors import counted, printable
from selftaught.named_groups.sorted_photos import SortedPhotos
from selftaught.report import PhotoGroup, Section, photo_groups, photo_of, write_gallery

SHOWN_GROUPS, SHOWN_PHOTOS = 300, 12


def write_groups_page(path: Path, found: SortedPhotos) -> None:
    """Write the page; the photos nearest to a center come first."""
    images, known, distances = found.images, found.known, found.distances
    shown = []
    for number in range(min(SHOWN_GROUPS, len(known.names))):
        rows = (found.groups == number).nonzero()[:, 0]
        rows = rows[distances[rows].argsort()]
        if not len(rows):
            continue
        nearest = rows[:SHOWN_PHOTOS].tolist()
        photos = [photo_of(images, row, f"{distances[row]:.3f} from the center") for row in nearest]
        heading = f"Group {number + 1} · {counted(len(rows), 'photo')}"
        shown.append(PhotoGroup(heading, photos, len(rows) - len(photos), number + 1, known.names[number]))
    if shown:
        how = "Give groups a name (two may have the same), then save groups.csv, which your browser downloads. With "
        how += "--names and that file, selftaught cluster finds the same groups in other photos."
    elif known.names:
        how = "None of them is among these photos."
    else:
        how = "There are none. A smaller --smallest finds smaller ones, and --whiten finer ones."
    if (more := len(known.names) - SHOWN_GROUPS) > 0:
        how += f" The first {SHOWN_GROUPS} are shown; {more} more are in images.csv."
    sections = [Section("Groups", how, html=photo_groups(shown))]
    rest = (found.groups < 0).nonzero()[:, 0]
    if len(rest):
        some = rest[pick_evenly(len(rest), SHOWN_PHOTOS)].tolist()
        group = PhotoGroup(counted(len(rest), "photo"), [photo_of(images, row) for row in some])
        text = "They look like too few others, or are too far from every group. Some of them:"
        sections.append(Section("In no group", text, html=photo_groups([group])))
    title = f"Groups in {printable(images.root)}"
    write_gallery(path, title, found.summarize(), sections, known.rows() if shown else None)
