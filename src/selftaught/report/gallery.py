"""Groups of photos as one HTML page: thumbnails inside, a histogram of distances, fields to name groups in."""

import base64
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
from selftaught.report.page import Section, write_page
from selftaught.report.sheet import fit_image

THUMBNAIL = 200
"""The height of a thumbnail in pixels; its width is at most 1.5 times that."""
BARS = 60

GALLERY_STYLE = """
.photos { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0; padding: 0; list-style: none; }
.photos li { width: min-content; min-width: 7rem; font-size: .8125rem; line-height: 1.35; color: var(--soft); }
.photos img { height: 8.5rem; width: auto; max-width: none; border-radius: .375rem; border: 1px solid var(--line); }
.photos b { color: var(--ink); }
.photos .name { display: block; margin-top: .25rem; width: 0; min-width: 100%; overflow-wrap: anywhere; }
.best img { outline: 3px solid #2da44e; outline-offset: -1px; }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: 0 2rem; }
.pairs .photos { flex-wrap: nowrap; }
.pairs .photos img { height: 6.5rem; max-width: 9.5rem; object-fit: cover; }
.pairs .photos li { max-width: 9.5rem; }
h3 { margin: 1.5rem 0 0; font-size: 1.0625rem; }
.histogram { display: block; width: 100%; max-width: 60rem; font: 12px system-ui, sans-serif; }
.histogram text { fill: var(--soft); }
.histogram .all { fill: var(--soft); opacity: .55; }
.histogram .made { fill: #2f81f7; opacity: .65; }
.histogram .limit { stroke: #cf222e; stroke-width: 2; }
.histogram .base { stroke: var(--line); }
input, button { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line);
  border-radius: .375rem; padding: .375rem .75rem; }
button { cursor: pointer; background: var(--band); }
.bar { position: sticky; top: 0; z-index: 1; display: flex; gap: 1rem; align-items: center; flex-wrap: wrap;
  padding: .75rem 0; background: var(--paper); border-bottom: 1px solid var(--line); }
.bar + section { margin-top: 0; border-top: 0; }
@media (max-width: 40rem) { .photos img { height: 5.5rem; } .photos li { min-width: 5rem; } }
"""

NAMING = """
const table = JSON.parse(document.getElementById("table").textContent);
const fields = [...document.querySelectorAll("input[data-row]")];
const told = document.getElementById("told");
const column = table[0].indexOf("name");
let saved = true;
function count() {
  told.textContent = `${fields.filter(field => field.value.trim()).length} of ${fields.length} groups have a name`;
}
for (const field of fields) field.addEventListener("input", () => { saved = false; count(); });
document.getElementById("save").addEventListener("click", () => {
  for (const field of fields) table[field.dataset.row][column] = field.value.trim();
  const cell = text => /[",\\r\\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  const csv = table.map(row => row.map(cell).join(",")).join("\\n") + "\\n";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
  link.download = "groups.csv";
  link.click();
  URL.revokeObjectURL(link.href);
  saved = true;
});
addEventListener("beforeunload", event => { if (!saved) event.preventDefault(); });
count();
""".strip()


@dataclass(frozen=True)
class Photo:
    """A photo on a page, with its name and a line about it."""

    path: str | Path
    name: str
    note: str = ""
    best: bool = False


@dataclass(frozen=True)
class PhotoGroup:
    """Photos that belong together; ``more`` of them are not shown.

    ``row``: the group's row in the table of names, where it can be named on the page.
    """

    heading: str
    photos: Sequence[Photo]
    more: int = 0
    row: int | None = None
    name: str = ""


def photo_of(images: ImageFolder, index: int, note: str = "", best: bool = False) -> Photo:
    """An image of a folder, under its name there."""
    return Photo(images.path(index), printable(images.files[index]), note, best)


def write_gallery(
    path: Path, title: str, lead: str, sections: Sequence[Section], names: Sequence[Sequence[str]] | None = None
) -> None:
    """Write a self-contained page of photos; with ``names``, a table with its header first, its user can name groups.

    A button then saves the table with these names as groups.csv. Photos that cannot be read are gray.
    """
    top = ""
    if names is not None:
        content = json.dumps(names).replace("<", "\\u003c")
        button = '<button id="save">Save the names as groups.csv</button>'
        top = f'<script type="application/json" id="table">{content}</script>\n'
        top += f'<div class="bar">{button}<span id="told" role="status"></span></div>'
    write_page(path, title, lead, sections, style=GALLERY_STYLE, top=top, script=NAMING if names is not None else "")


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
    more = f"<p>and {group.more} more</p>" if group.more else ""
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
    """A path as HTML in which a line may end after each folder, and not within a number that follows."""
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
    data, (width, height) = base64.b64encode(content.getvalue()).decode(), picture.size
    size = f'width="{width}" height="{height}"'
    return f'<img src="data:image/jpeg;base64,{data}" alt="{escape(name)}" {size} loading="lazy">'
