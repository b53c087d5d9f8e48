import json
import re
from pathlib import Path

from PIL import Image
from test_page import EVIL, Page

from selftaught.report import PhotoGroup, Section, histogram, photo_groups, write_gallery
from selftaught.report.gallery import Photo


def test_everything_is_escaped_and_images_are_inside(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30), "red").save(tmp_path / "a.png")
    photos = [Photo(tmp_path / "a.png", EVIL, EVIL, best=True), Photo(tmp_path / "gone.png", "gone")]
    groups = [PhotoGroup(EVIL, photos, more=3, row=1, name=EVIL, others=[EVIL])]
    path = tmp_path / "page.html"
    write_gallery(
        path, EVIL, EVIL, [Section(EVIL, EVIL, html=photo_groups(groups))], names=[["group", "name"], ["1", EVIL]]
    )
    page = Page(path)
    assert [image.size for image in page.images()] == [(40, 30), (200, 200)]
    assert ("value", EVIL) in page.attributes
    assert page.tags.count("script") == 2  # the table, and what saves it
    table = re.search(r'id="table">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert table is not None
    assert json.loads(table[1]) == [["group", "name"], ["1", EVIL]]


def test_a_page_without_names_has_no_script(tmp_path: Path) -> None:
    write_gallery(tmp_path / "page.html", "t", "l", [Section("h", "t")])
    assert "<script" not in (tmp_path / "page.html").read_text()


def test_a_histogram_has_all_values_and_its_threshold() -> None:
    svg = histogram([0.1, 0.1, 0.5], [0.2], 0.3)
    counts = [int(n) for n in re.findall(r"<title>(\d+) at", svg)]
    assert sum(counts) == 4
    assert "threshold 0.3" in svg
    assert "threshold" not in histogram([], [], None)


def test_a_histogram_has_round_ticks_and_is_as_wide_as_the_page() -> None:
    svg = histogram([0.1, 0.1, 0.937], [0.2], 0.3)
    assert re.findall(r">([\d.]+)</text>", svg) == ["0", "0.2", "0.4", "0.6", "0.8"]
    assert "viewBox" not in svg, "text would shrink with the page"


def test_a_line_may_end_after_a_folder_of_a_name(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30), "red").save(tmp_path / "a.png")
    html = photo_groups([PhotoGroup("g", [Photo(tmp_path / "a.png", "birds/0014.jpg")])])
    assert "birds/<wbr>0014.jpg</span>" in html


def test_pairs_are_side_by_side_unless_they_can_be_named() -> None:
    two, three = [Photo("a.png", "a")] * 2, [Photo("a.png", "a")] * 3
    html = photo_groups([PhotoGroup("1", three), PhotoGroup("2", two), PhotoGroup("3", two)])
    assert html.index("<h3>1") < html.index('class="pairs"') < html.index("<h3>2") < html.index("<h3>3")
    assert html.count('class="pairs"') == 1
    assert "pairs" not in photo_groups([PhotoGroup("1", two, row=1)])
