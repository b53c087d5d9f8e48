"""Text in pictures: a font that is always available, and strings that it can draw in a given width."""

import unicodedata
from functools import lru_cache
from pathlib import Path

import matplotlib
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont

from selftaught.report.curves import INK

MISSING = "□"
"""Stands for a character the font has no glyph for."""

LONGEST = 400
"""The most characters of a text that are used: more never fit."""


def text_line(text: str, face: ImageFont.FreeTypeFont, width: int, *, centered: bool = False) -> Image.Image:
    """One line of text on white, shortened to ``width`` pixels.

    It is a separate picture, so that stacked accents cannot reach beyond the line.
    """
    strip = Image.new("RGB", (width, sum(face.getmetrics())), "white")
    short = shorten(text, face, width)
    left = (width - face.getlength(short)) / 2 if centered else 0
    ImageDraw.Draw(strip).text((left, 0), short, INK, face)
    return strip


def shorten(text: str, face: ImageFont.FreeTypeFont, width: int) -> str:
    """The text shortened to ``width`` pixels, with an ellipsis inside if needed.

    Both ends are kept, more of the start: file names often differ in a number just before the extension.
    """
    if len(text) > LONGEST:
        text = text[: LONGEST // 2] + text[-LONGEST // 2 :]
    text = drawable(text)
    if face.getlength(text) <= width:
        return text
    for kept in range(len(text) - 1, 0, -1):
        head = -(-2 * kept // 3)
        short = text[:head].rstrip() + "…" + text[len(text) - (kept - head) :].lstrip()
        if face.getlength(short) <= width:
            return short
    return "…"


def drawable(text: str) -> str:
    """The text on one line, with only characters that the font can draw.

    Line breaks become spaces, invisible characters (joiners, direction marks, variation selectors) are removed,
    and every other character without a glyph becomes □.

    Example:
        >>> drawable("two\\nlines, 猫.jpg")
        'two lines, □.jpg'
    """
    line = " ".join(unicodedata.normalize("NFC", text).split())
    return "".join(c if ord(c) in _characters() else MISSING for c in line if not _invisible(c))


@lru_cache(maxsize=32)
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with matplotlib."""
    return ImageFont.truetype(_font_file(bold=bold), size)


@lru_cache(maxsize=1)
def _characters() -> frozenset[int]:
    regular, bold = (set(FT2Font(str(_font_file(bold=bold))).get_charmap()) for bold in (False, True))
    return frozenset(regular & bold)


def _font_file(*, bold: bool) -> Path:
    return Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")


def _invisible(character: str) -> bool:
    return unicodedata.category(character) == "Cf" or "VARIATION SELECTOR" in unicodedata.name(character, "")
