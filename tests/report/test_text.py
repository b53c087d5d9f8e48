import pytest
from hypothesis import given
from hypothesis import strategies as st

from selftaught.report.text import MISSING, drawable, font, shorten


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("plain name.jpg", "plain name.jpg"),
        ("two\r\nlines\tand\u2028more", "two lines and more"),
        ("Müller ±σ русский", "Müller ±σ русский"),
        ("e\u0301", "é"),
        ("猫🦜", MISSING * 2),
        ("rtl\u202eevil", "rtlevil"),
        ("heart\ufe0f \u200bspace", "heart space"),
        ("bytes \udcff\x00", f"bytes {MISSING * 2}"),
    ],
)
def test_only_what_the_font_can_draw_is_kept(text: str, drawn: str) -> None:
    assert drawable(text) == drawn


@given(text=st.text(st.characters(categories=None)), width=st.integers(20, 400))
def test_any_text_fits_any_width(text: str, width: int) -> None:
    face = font(13)
    short = shorten(text, face, width)
    assert face.getlength(short) <= width
    assert "\n" not in short


def test_a_long_name_keeps_both_ends() -> None:
    short = shorten("DSC_2024_holiday_in_the_mountains_000123.jpg", font(13), 160)
    assert short.startswith("DSC_2024")
    assert short.endswith("23.jpg")
    assert "…" in short


def test_a_text_that_fits_is_left_alone() -> None:
    assert shorten("0.53 · finch", font(13), 160) == "0.53 · finch"
