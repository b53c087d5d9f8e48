import base64
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from selftaught.report import Section, picture, write_page

VOID = {"meta", "img", "br", "link", "hr", "input", "wbr"}


class Page(HTMLParser):
    """The page's tags, attributes and text, with every tag closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(path.read_text("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.text.append(data.strip())

    def images(self) -> list[Image.Image]:
        sources = [value or "" for name, value in self.attributes if name == "src"]
        return [Image.open(io.BytesIO(base64.b64decode(source.split(";base64,")[1]))) for source in sources]


EVIL = "<script>alert('1')</script> & \"quotes\" </p></main> 😀"


def test_everything_is_escaped_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    drawing = picture(Image.new("RGB", (3, 3)), EVIL)
    write_page(path, EVIL, EVIL, [Section(EVIL, EVIL, table=[[EVIL, EVIL], [EVIL, EVIL]], html=drawing)])
    page = Page(path)
    assert "script" not in page.tags
    assert page.text.count(EVIL) == 1 + 1 + 1 + 1 + 1 + 4
    assert ("alt", EVIL) in page.attributes


def test_images_are_inside_the_page(tmp_path: Path) -> None:
    photo = Image.effect_noise((64, 48), 90).convert("RGB")
    drawing, clear = Image.new("L", (300, 200), 127), Image.new("RGBA", (30, 20), (255, 0, 0, 128))
    sections = [Section("", "", html=picture(image, "")) for image in (photo, drawing, clear)]
    write_page(tmp_path / "page.html", "Pictures", "", sections)
    images = Page(tmp_path / "page.html").images()
    assert [image.format for image in images] == ["JPEG", "PNG", "WEBP"]
    assert [image.size for image in images] == [(64, 48), (300, 200), (30, 20)]
    assert images[1].getpixel((0, 0)) == (127, 127, 127)
    assert images[2].getpixel((0, 0)) == pytest.approx((255, 0, 0, 128), abs=3)


def test_nothing_is_loaded_or_run(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    drawing = picture(Image.new("L", (2, 2)), "")
    write_page(path, "Title", "Lead", [Section("Heading", "Text", table=[["a"], ["1"]], html=drawing)])
    page, source = Page(path), path.read_text()
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert not any(name.startswith("on") or name == "href" for name, _ in page.attributes)
    assert all((value or "").startswith("data:image/") for name, value in page.attributes if name == "src")
    assert not any(word in source for word in ("http://", "https://", "url(", "@import"))
    assert "prefers-color-scheme: dark" in source


def test_blank_lines_part_paragraphs(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", "Title", "", [Section("Heading", "one\ntwo\n\n \nthree\n")])
    page = Page(tmp_path / "page.html")
    assert page.text[-2:] == ["one\ntwo", "three"]
    assert page.tags.count("p") == 2


def test_columns_of_numbers_are_flush_right(tmp_path: Path) -> None:
    table = [["Model", "Recall", "Note"], ["a", "59.7 ± 0.2%", "7"], ["b", "–", "seven"]]
    write_page(tmp_path / "page.html", "Title", "", [Section("Heading", "", table=table)])
    source = (tmp_path / "page.html").read_text()
    assert '<tr><th>Model</th><th class="number">Recall</th><th>Note</th></tr>' in source
    assert '<tr><td>b</td><td class="number">–</td><td>seven</td></tr>' in source


@pytest.mark.parametrize("table", [[], [[]], [["header only"]], [["a", "b"], ["1"], ["1", "2", "3"]]])
def test_odd_tables_are_well_formed(tmp_path: Path, table: list[list[str]]) -> None:
    write_page(tmp_path / "page.html", "Title", "", [Section("Heading", "", table=table)])
    page = Page(tmp_path / "page.html")
    assert [text for row in table for text in row] == page.text[page.text.index("Heading") + 1 :]


def test_a_name_that_is_no_unicode_does_not_stop_the_page(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", "bytes \udcff", "", [])
    assert "bytes ?" in Page(tmp_path / "page.html").text


def test_no_line_ends_within_an_option(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", "t", "Choose with --threshold; a -- dash <b>", [])
    page = (tmp_path / "page.html").read_text()
    assert '<p>Choose with <span class="option">--threshold</span>; a -- dash &lt;b&gt;</p>' in page
