"""The neighbors of a photo before and after training, one row above the other, as HTML."""

from collections.abc import Mapping, Sequence
from html import escape

from selftaught.report.gallery import Photo, breakable, thumbnail_html

SIDE = 150
"""Pixels of a photo's shorter side; the page shows a square of it."""

MARKS = {"right": "✓", "wrong": "✗", "new": "new"}
"""What is written on a photo that was found, by its note."""


def comparison(query: Photo, rows: Mapping[str, Sequence[Photo]]) -> str:
    """A photo, and beside it one row of neighbors for each model, under the model's name."""
    shown = "".join(
        f'<div><h3>{escape(name)}</h3>\n<ol class="found">{"".join(map(_found, row))}</ol></div>'
        for name, row in rows.items()
    )
    photo, name = thumbnail_html(query.path, query.name, SIDE), breakable(query.name)
    return f'<div class="query"><figure>{photo}<figcaption>{name}</figcaption></figure>{shown}</div>'


def _found(one: Photo) -> str:
    photo, name = thumbnail_html(one.path, one.name, SIDE), escape(one.name)
    mark = f"<b>{MARKS[one.note]}</b>" if one.note else ""
    return f'<li class="{one.note or "plain"}" title="{name}">{photo}{mark}</li>'
