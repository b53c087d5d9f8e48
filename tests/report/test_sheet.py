from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from selftaught.report import FAINT, Tile, contact_sheet, search_sheet
from selftaught.report.sheet import FRAME_COLORS, MAT, Frame

ORANGE = Image.new("RGB", (40, 40), "#ff9900")
GAP, TILE = 16, 160
FRAMES: tuple[Frame, ...] = ("plain", "query", "right", "wrong")


def pixel(sheet: Image.Image, x: int, y: int) -> str:
    red, green, blue = sheet.convert("RGB").crop((x, y, x + 1, y + 1)).tobytes()
    return f"#{red:02x}{green:02x}{blue:02x}"


def ink(sheet: Image.Image, box: tuple[int, int, int, int]) -> int:
    """Dark pixels of a part of the sheet."""
    return sum(value < 128 for value in sheet.convert("L").crop(box).tobytes())


@pytest.mark.parametrize("frame", FRAMES)
def test_a_tile_has_its_frames_color_on_all_sides_and_its_image_within(frame: Frame) -> None:
    sheet = contact_sheet([[Tile(ORANGE, frame=frame)]])
    low, high, middle = GAP + 2, GAP + TILE - 3, GAP + TILE // 2
    sides = {pixel(sheet, *at) for at in [(low, middle), (high, middle), (middle, low), (middle, high), (GAP, GAP)]}
    assert sides == {FRAME_COLORS[frame]}
    assert pixel(sheet, middle, middle) == "#ff9900"
    assert pixel(sheet, GAP - 1, middle) == pixel(sheet, GAP + TILE, middle) == "#ffffff"


def test_right_and_wrong_differ_without_color() -> None:
    corner = (GAP + 124, GAP + 10, GAP + 150, GAP + 36)
    marks = []
    for frame in FRAMES:
        badge = contact_sheet([[Tile(ORANGE, frame=frame)]]).crop(corner)
        marks.append(bytes(min(color) > 200 for color in zip(*[iter(badge.tobytes())] * 3, strict=True)))
    plain, query, right, wrong = marks
    assert plain == query == bytes(len(plain))
    differing = sum(a != b for a, b in zip(right, wrong, strict=True))
    assert differing > 30


@pytest.mark.parametrize("size", [(400, 100), (100, 400), (5000, 1), (1, 1)])
def test_the_whole_image_is_shown_on_a_mat(size: tuple[int, int]) -> None:
    image = Image.new("RGB", size, "#ff9900")
    sheet = contact_sheet([[Tile(image)]])
    inside = sheet.crop((GAP + 5, GAP + 5, GAP + TILE - 5, GAP + TILE - 5))
    count = {color: count for count, color in inside.getcolors(1 << 16) or []}
    assert count[255, 153, 0] == 150 * max(1, round(150 * min(size) / max(size)))
    assert pixel(sheet, GAP + 6, GAP + 6) == (MAT if size[0] != size[1] else "#ff9900")


def test_size_follows_rows_columns_and_headings() -> None:
    row = [Tile(ORANGE)] * 3
    one, two = contact_sheet([row]), contact_sheet([row, row[:1]])
    assert one.width == two.width == 3 * TILE + 4 * GAP
    line = two.height - one.height
    assert TILE < line < TILE + 3 * GAP
    assert contact_sheet([row], headings={0: "Before"}).height > one.height
    assert contact_sheet([row], tile=320).width == 2 * one.width
    assert contact_sheet([]).width > 0


def test_a_query_stands_apart_from_its_neighbors() -> None:
    sheet = contact_sheet([[Tile(ORANGE, frame="query"), Tile(ORANGE, frame="right")]])
    middle = GAP + TILE // 2
    assert pixel(sheet, 2 * GAP + TILE, middle) == "#ffffff"
    assert pixel(sheet, 3 * GAP + TILE, middle) == FRAME_COLORS["right"]


def test_headings_are_drawn_above_their_row_only() -> None:
    rows = [[Tile(ORANGE)] * 2] * 2
    plain, headed = contact_sheet(rows), contact_sheet(rows, headings={1: "After training"})
    first = plain.height // 2
    assert plain.crop((0, 0, plain.width, first)).tobytes() == headed.crop((0, 0, plain.width, first)).tobytes()
    assert ink(headed, (0, first, headed.width, headed.height)) > ink(plain, (0, first, plain.width, plain.height)) + 50


def test_a_long_heading_widens_a_narrow_sheet() -> None:
    narrow, wide = (contact_sheet([[Tile(ORANGE)]], headings={0: text}) for text in ("short", "long words " * 3))
    assert narrow.width == TILE + 2 * GAP < wide.width
    assert contact_sheet([[Tile(ORANGE)]], headings={0: "word " * 500}).width <= 6 * TILE + 2 * GAP


def test_captions_stay_below_their_own_tile() -> None:
    caption = "Z" + "\u0301" * 50 + "W" * 300 + ".jpg"
    sheet = contact_sheet([[Tile(ORANGE, caption), Tile(ORANGE)]])
    empty = contact_sheet([[Tile(ORANGE), Tile(ORANGE)]])
    below = GAP + TILE
    assert ink(sheet, (GAP, below, GAP + TILE, sheet.height)) > 100
    assert ink(sheet, (GAP + TILE, below, sheet.width, sheet.height)) == 0
    top = (0, 0, sheet.width, below)
    assert sheet.crop(top).tobytes() == empty.crop(top).tobytes()


@pytest.mark.parametrize("content", [None, b"", b"\xff\xd8\xff no picture", b"plain text"])
def test_an_unreadable_image_becomes_a_gray_tile(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "odd 😀\nname.jpg"
    if content is not None:
        path.write_bytes(content)
    sheet = contact_sheet([[Tile(path, path.name, "wrong"), Tile(ORANGE)]])
    assert pixel(sheet, GAP + 10, GAP + 10) == FAINT
    assert pixel(sheet, GAP, GAP) == FRAME_COLORS["wrong"]
    assert pixel(sheet, 2 * GAP + TILE + 80, GAP + 80) == "#ff9900"


def test_an_empty_or_truncated_pillow_image_becomes_a_gray_tile(tmp_path: Path) -> None:
    Image.effect_noise((200, 200), 80).save(tmp_path / "whole.jpg")
    (tmp_path / "half.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:2000])
    with Image.open(tmp_path / "half.jpg") as half:
        sheet = contact_sheet([[Tile(half), Tile(Image.new("RGB", (0, 0)))]])
    assert pixel(sheet, GAP + 10, GAP + 10) == pixel(sheet, 2 * GAP + TILE + 10, GAP + 10) == FAINT


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_images_are_read_from_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"猫 😀.{suffix}"
    ORANGE.save(path, quality=100, subsampling=0)
    shown = pixel(contact_sheet([[Tile(path, path.name)]]), GAP + 80, GAP + 80)
    assert shown in ("#ff9900", "#fe9900")


def test_the_columns_below_a_search_do_not_touch_however_many_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float, float]] = []
    text = ImageDraw.ImageDraw.text

    def note(draw: ImageDraw.ImageDraw, at: tuple[float, float], words: str, fill: str, face: Any) -> None:
        drawn.append((at[1], at[0], at[0] + face.getlength(words)))
        text(draw, at, words, fill, face)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", note)
    module = import_module("selftaught.report.search_sheet")  # a function of the package has the same name
    monkeypatch.setattr(module, "contact_sheet", lambda _, tile: Image.new("RGB", (tile, tile)))
    search_sheet([(Path("query.jpg"), [(Path("near.jpg"), 0.25, 0.97)] * 1000)], {})
    lines = sorted(drawn)
    gaps = [after[1] - before[2] for before, after in pairwise(lines) if before[0] == after[0]]
    assert len(gaps) == 2 * 1001
    assert min(gaps) >= 0
