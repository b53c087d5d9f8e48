"""The neighbors of a photo before and after training, one row above the other, as HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from selftaught.report.gallery import breakable, thumbnail_html

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


@dataclass(frozen=True)
class Find:
    """A photo that was found; ``mark``: "right", "wrong", "new" or nothing."""

    path: str
    name: str
    mark: str = ""


MARKS = {"right": "✓", "wrong": "✗", "new": "new"}


def comparison(query: Find, rows: Mapping[str, Sequence[Find]]) -> str:
    """A photo, and beside it one row of neighbors for each model, under the model's name."""
    shown = "".join(
        f'<div><h3>{escape(name)}</h3>\n<ol class="found">{"".join(map(_found, row))}</ol></div>'
        for name, row in rows.items()
    )
    photo, name = thumbnail_html(query.path, query.name, SIDE), breakable(query.name)
    return f'<div class="query"><figure>{photo}<figcaption>{name}</figcaption></figure>{shown}</div>'


def _found(one: Find) -> str:
    photo, name = thumbnail_html(one.path, one.name, SIDE), escape(one.name)
    mark = f"<b>{MARKS[one.mark]}</b>" if one.mark else ""
    return f'<li class="{one.mark or "plain"}" title="{name}">{photo}{mark}</li>'
