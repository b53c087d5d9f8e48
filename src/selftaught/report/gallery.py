"""Groups of photos as one HTML page: thumbnails inside, a histogram of distances, fields to name groups in."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from matplotlib.ticker import MaxNLocator
from PIL import Image

from selftaught.data import ImageFolder, open_image
from selftaught.errors import ImageError, printable
from selftaught.files import read_static
from selftaught.report.page import Section, image_tag, write_page
from selftaught.report.sheet import fit_image

THUMBNAIL = 200
"""The height of a thumbnail in pixels; its width is at most 1.5 times that."""
BARS = 60


@dataclass(frozen=True)
class Photo:
    """A photo on a page, with its name and a line about it."""

    path: str | Path
    name: str
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class PhotoGroup:
    """Photos that belong together; ``more`` of them are not shown; ``others``: the names of these.

    ``row``: the group's row in the table of names, where it can be named on the page.
    """

    heading: str
    photos: Sequence[Photo]
    more: int = 0
    row: int | None = None
    name: str = ""
    others: Sequence[str] = ()


def photo_of(images: ImageFolder, index: int, note: str = "", best: bool = False) -> Photo:
    """An image of a folder, under its name there."""
    return Photo(images.path(index), printable(images.files[index]), note, best)


def write_gallery(
    path: Path, title: str, lead: str, sections: Sequence[Section], names: Sequence[Sequence[str]] | None = None
) -> None:
    """Write a self-contained page of photos; with ``names``, a table with its header first, its user can name groups.

    A button then saves the table with these names as groups.csv. Photos that cannot be read are gray.
    """
    top = script = ""
    if names is not None:
        content = json.dumps(names).replace("<", "\\u003c")
        button = '<button id="save">Save the names as groups.csv</button>'
        top = f'<script type="application/json" id="table">{content}</script>\n'
        top += f'<div class="bar">{button}<span id="told" role="status"></span></div>'
        script = read_static("report", "names.js")
    write_page(path, title, lead, sections, top=top, script=script)


def histogram(distances: Sequence[float], made: Sequence[float], threshold: float | None) -> str:
    """Two histograms over one axis as SVG, each as high as its highest bar, and a line at the threshold.

    Its width is the page's: places along the axis are in percent, so that text keeps its size on a narrow screen.
    """
    height, bottom = 220, 190
    end = max([*distances, *made, threshold or 0.0, 1e-9]) * 1.02

    def bars(values: Sequence[float], kind: str) -> str:
        counts = [0] * BARS
        for value in values:
            counts[min(BARS - 1, int(value / end * BARS))] += 1
        step, top = 100 / BARS, max([1, *counts])
        boxes = [
            f'<rect class="{kind}" x="{i * step:.2f}%" y="{bottom - 160 * count / top:.1f}" width="{0.93 * step:.2f}%" '
            f'height="{160 * count / top:.1f}"><title>{count} at {i * end / BARS:.3g}</title></rect>'
            for i, count in enumerate(counts)
            if count
        ]
        return "".join(boxes)

    def label(value: float) -> str:
        side = "start" if value == 0 else "middle"
        return f'<text x="{100 * value / end:.2f}%" y="{bottom + 18}" text-anchor="{side}">{value:.3g}</text>'

    # The last tenth is for the name of the axis.
    ticks = "".join(label(value) for value in MaxNLocator(5).tick_values(0, end) if 0 <= value < 0.9 * end)
    limit = ""
    if threshold is not None:
        x = 100 * threshold / end
        side, dx = ("end", -6) if x > 50 else ("start", 6)
        limit = f'<line class="limit" x1="{x:.2f}%" x2="{x:.2f}%" y1="14" y2="{bottom}"/>'
        limit += f'<text x="{x:.2f}%" dx="{dx}" y="22" text-anchor="{side}">threshold {threshold:.3g}</text>'
    return (
        f'<svg class="histogram" height="{height}" role="img" aria-label="Distances to the nearest photo">'
        f'{bars(distances, "all")}{bars(made, "made")}<line class="base" x1="0" x2="100%" y1="{bottom}" '
        f'y2="{bottom}"/>{ticks}<text x="100%" y="{bottom + 18}" text-anchor="end">distance</text>{limit}</svg>'
    )


def photo_groups(groups: Sequence[PhotoGroup]) -> str:
    """Groups as HTML, one below the other; pairs that need no name are side by side."""
    parts = []
    for pairs, some in groupby(groups, lambda group: len(group.photos) == 2 and group.row is None):
        shown = "\n".join(map(_group, some))
        parts.append(f'<div class="pairs">{shown}</div>' if pairs else shown)
    return "\n".join(parts)


def _group(group: PhotoGroup) -> str:
    """A group: its heading, its photos, a field for its name if it can be named."""
    photos = "".join(_photo(photo) for photo in group.photos)
    names = f": {', '.join(map(breakable, group.others))}" if group.others else ""
    more = f"<p>and {group.more} more{names}</p>" if group.more else ""
    field = ""
    if group.row is not None:
        described = f'aria-label="Name of {escape(group.heading)}" value="{escape(group.name)}"'
        field = f' <input data-row="{group.row}" placeholder="name" {described}>'
    return f'<div><h3>{escape(group.heading)}{field}</h3>\n<ul class="photos">{photos}</ul>{more}</div>'


def _photo(photo: Photo) -> str:
    picture, title, name = thumbnail_html(photo.path, photo.name), escape(photo.name), breakable(photo.name)
    kind = ' class="best"' if photo.best else ""
    note = " · ".join(filter(None, ["<b>best</b>" if photo.best else "", escape(photo.note)]))
    return f'<li{kind}>{picture}<span class="name" title="{title}">{name}</span>{note}</li>'


def breakable(name: str) -> str:
    """A path as HTML that may be broken into lines after each folder, and nowhere else."""
    return escape(name).replace("/", "/<wbr>")


def thumbnail_html(path: str | Path, name: str, height: int = THUMBNAIL) -> str:
    """A small picture of a photo as HTML, its data inside."""
    try:
        picture = open_image(path, least=height)
        picture.thumbnail((3 * height // 2, height), Image.Resampling.LANCZOS)
    except ImageError:
        picture = fit_image(Path(path), height)
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=80)
    return image_tag("jpeg", content.getvalue(), picture.size, name)
