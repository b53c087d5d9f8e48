"""A report as one HTML file that can be opened from disk, mailed and archived."""

import base64
import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from selftaught.data import to_rgb
from selftaught.files import read_static, write_atomically

NUMBER = re.compile(r"[-+−]?\d[\d.,]*\s*(%|[a-zA-Zµ×]{1,3})?(\s*±\s*[\d.,]+\s*%?)?|[–—-]?")
"""Matches a cell that is aligned right: a number, optionally with a unit or an error, or a dash for none."""

OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")
"""Matches an option of a command, which no line may end within."""


@dataclass(frozen=True)
class Section:
    """A part of the page: text (blank lines separate paragraphs), a table with its header first, HTML."""

    heading: str
    text: str
    table: Sequence[Sequence[str]] | None = None
    html: str = ""


def write_page(
    path: Path, title: str, lead: str, sections: Sequence[Section], *, top: str = "", script: str = ""
) -> None:
    """Write a self-contained page: images are data, only ``script`` may run, and nothing is fetched.

    ``top``: HTML before the first section.
    """
    style, allowed = read_static("report", "page.css"), "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    if script:
        digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode()
        allowed += f"; script-src 'sha256-{digest}'"
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Browsers then refuse to fetch anything, whatever the text contains.
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">',
        '<meta name="generator" content="selftaught">',
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>",
        f'<header class="lead">\n<h1>{escape(title)}</h1>\n{_paragraphs(lead)}\n</header>',
        *([top] if top else []),
        *map(_section, sections),
        "</main>",
        *([f"<script>\n{script}\n</script>"] if script else []),
        "</body>\n</html>\n",
    ]
    # A file name may hold bytes that are not text; they become question marks.
    write_atomically(path, "\n".join(parts).encode("utf-8", "replace"))


def _section(section: Section) -> str:
    table = _table(section.table) if section.table else ""
    parts = [f"<section>\n<h2>{escape(section.heading)}</h2>", _paragraphs(section.text), table, section.html]
    return "\n".join([*filter(None, parts), "</section>"])


def _paragraphs(text: str) -> str:
    parts = [escape(part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]
    return "\n".join(OPTION.sub(r'<span class="option">\g<0></span>', f"<p>{part}</p>") for part in parts)


def picture(image: Image.Image, description: str) -> str:
    """A picture as a figure, its data inside; where it is transparent, the page shows through."""
    # Photographs are many times smaller as JPEG, and drawings as PNG, which also keeps them exact.
    options: dict[str, dict[str, Any]] = {"png": {"optimize": True}, "jpeg": {"quality": 90, "subsampling": 0}}
    drawn = to_rgb(image)
    if image.mode == "RGBA":
        drawn, options = image, {"webp": {"quality": 90}}
    contents = {kind: io.BytesIO() for kind in options}
    for kind, content in contents.items():
        drawn.save(content, kind, **options[kind])
    kind = min(contents, key=lambda kind: contents[kind].tell())
    return f"<figure>{image_tag(kind, contents[kind].getvalue(), drawn.size, description)}</figure>"


def image_tag(kind: str, content: bytes, size: tuple[int, int], description: str) -> str:
    """An image as HTML, its data inside."""
    data = base64.b64encode(content).decode()
    size_of_box = f'width="{size[0]}" height="{size[1]}"'
    return f'<img src="data:image/{kind};base64,{data}" alt="{escape(description)}" {size_of_box} loading="lazy">'


def _table(table: Sequence[Sequence[str]]) -> str:
    body, lines = table[1:], []
    sides = [
        ' class="number"' if body and all(NUMBER.fullmatch(row[i].strip()) for row in body if i < len(row)) else ""
        for i in range(max(map(len, table)))
    ]
    for number, row in enumerate(table):
        tag = "td" if number else "th"
        cells = [f"<{tag}{side}>{escape(cell)}</{tag}>" for cell, side in zip(row, sides, strict=False)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return '<div class="table">\n<table>\n' + "\n".join(lines) + "\n</table>\n</div>"
