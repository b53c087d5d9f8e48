"""The neighbors of a photo before and after training, one row above the other, as HTML."""

from collections.abc import Mapping, Sequence
from html import escape

from selftaught.report.gallery import Photo, breakable, thumbnail_html

SIDE = 150
"""Pixels of a photo's shorter side; the page shows a square of it."""

COMPARISON_STYLE = """
.query { display: grid; grid-template-columns: minmax(5rem, 8rem) 1fr; gap: 0 1.5rem; margin: 1.5rem 0 2.5rem; }
.query > figure { grid-row: span 2; margin: 0; padding: 0; border: 0; background: none; font-size: .8125rem;
  color: var(--soft); width: 100%; line-height: 1.35; overflow-wrap: anywhere; }
.query img { width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: .375rem; }
.query h3 { margin: 0 0 .25rem; font-size: .875rem; font-weight: 600; color: var(--soft); }
.found { display: grid; grid-template-columns: repeat(6, 1fr); gap: .5rem; margin: 0 0 .75rem; padding: 0;
  list-style: none; }
.found li { position: relative; }
.found b { position: absolute; left: .25rem; bottom: .25rem; padding: 0 .375rem; border-radius: .25rem;
  font-size: .75rem; line-height: 1.4; color: #fff; background: #0969da; }
.found .right b { background: #1a7f37; }
.found .wrong b { background: #cf222e; }
@media (max-width: 40rem) { .query { grid-template-columns: 1fr; } .query > figure { width: 40%; margin-bottom: .5rem; }
  .found { gap: .25rem; } .found b { font-size: .6875rem; padding: 0 .25rem; } }
"""


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
