from pathlib import Path

import numpy as np
from PIL import Image

from selftaught.report import draw_lines

NAMES = {"a": "first", "b": "second"}


def test_every_value_is_on_the_chart_and_each_line_is_named_at_its_end(tmp_path: Path) -> None:
    rows = [{"epoch": 0, "a": 0.5, "b": 0.6}, {"epoch": 10, "a": 0.7}, {"epoch": 20, "a": 0.9, "b": 0.8}]
    figure = draw_lines(rows, NAMES, "Scores")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "Scores"
    lines = [np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()]
    assert [[0, 50], [10, 70], [20, 90]] in lines
    assert [[0, 60], [20, 80]] in lines
    assert [text.get_text() for text in axes.texts] == ["second 80.0%", "first 90.0%"]
    figure.savefig(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 800
