from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from selftaught.report import plot_lines

NAMES = {"a": "first", "b": "second"}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved, to look into."""
    figures: list[Figure] = []
    save = Figure.savefig

    def watched(figure: Figure, *args: object, **options: object) -> None:
        figures.append(figure)
        save(figure, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", watched)
    return figures


def test_every_value_is_on_the_chart_and_each_line_is_named_at_its_end(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = [{"epoch": 0, "a": 0.5, "b": 0.6}, {"epoch": 10, "a": 0.7}, {"epoch": 20, "a": 0.9, "b": 0.8}]
    plot_lines(rows, NAMES, tmp_path / "x.png", title="Scores")
    (axes,) = drawn[0].axes
    assert axes.get_title(loc="left") == "Scores"
    lines = [np.asarray(line.get_xydata()).tolist() for line in axes.get_lines()]
    assert [[0, 50], [10, 70], [20, 90]] in lines
    assert [[0, 60], [20, 80]] in lines
    assert [text.get_text() for text in axes.texts] == ["second 80.0 %", "first 90.0 %"]
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 800


def test_an_older_picture_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"old")
    plot_lines([{"epoch": 0, "a": 1.0}], NAMES, tmp_path / "x.png", title="Scores")
    assert [file.name for file in tmp_path.iterdir()] == ["x.png"]
    with Image.open(tmp_path / "x.png") as picture:
        picture.verify()
