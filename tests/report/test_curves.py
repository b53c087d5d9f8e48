import math
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from selftaught.report import draw_charts, draw_lines, plot_curves

START = {"effective_rank": 92.0, "recall@1": 0.4, "recall@2": 0.5, "map@r": 0.2}


def epochs(count: int) -> list[dict[str, float]]:
    row = {"contrastive": 0.9, "distillation": 0.008, "r_precision": 0.3, **START}
    return [{"epoch": n, **{key: value / n**0.1 for key, value in row.items()}} for n in range(1, count + 1)]


def xs(axes: Axes) -> list[float]:
    return [float(x) for x in np.asarray(axes.get_lines()[0].get_xdata())]


def ys(axes: Axes) -> list[float]:
    return [float(y) for y in np.asarray(axes.get_lines()[0].get_ydata())]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved, to look into; small ones, to be quick."""
    figures: list[Figure] = []
    save = Figure.savefig

    def watched(figure: Figure, *args: object, **options: object) -> None:
        figures.append(figure)
        save(figure, *args, dpi=40, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", watched)
    return figures


@pytest.mark.parametrize("count", [0, 1, 200])
def test_any_number_of_epochs_gives_a_readable_png(tmp_path: Path, drawn: list[Figure], count: int) -> None:
    path = tmp_path / "curves.png"
    plot_curves(START, epochs(count), path)
    with Image.open(path) as image:
        image.verify()
        assert image.format == "PNG"
    titles = [axes.get_title(loc="left").split(" –")[0] for axes in drawn[0].axes]
    losses, known = ["Contrastive loss", "Distillation loss"], ["Effective rank", "Recall", "MAP@R, R-Precision"]
    assert titles == (losses + known if count else known)
    assert [file.name for file in tmp_path.iterdir()] == ["curves.png"]


def test_every_value_is_on_its_chart_and_fractions_are_percent(tmp_path: Path, drawn: list[Figure]) -> None:
    history = epochs(3)
    plot_curves(START, history, tmp_path / "curves.png")
    recall = drawn[0].axes[3]
    assert xs(recall) == [0, 1, 2, 3]
    assert ys(recall) == [100 * row["recall@1"] for row in [START, *history]]
    distillation = drawn[0].axes[1]
    assert xs(distillation) == [1, 2, 3]
    low, high = distillation.get_ylim()
    assert 0 == low < high < 0.01
    assert [text.get_text() for text in recall.texts] == ["@1 35.8%", "@2 44.8%"]


def test_lines_that_end_together_have_labels_apart(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_curves({f"recall@{k}": 0.99 for k in (1, 2, 4, 8)}, [], tmp_path / "curves.png")
    heights = sorted(text.get_position()[1] for text in drawn[0].axes[0].texts)
    assert len(heights) == 4
    assert all(above - below > 0.08 for below, above in pairwise(heights))
    assert -0.01 <= heights[0] <= heights[-1] <= 1.01


def test_recall_charts_take_any_k_in_order(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_curves({"recall@1000": 0.9, "recall@1": 0.6, "recall@10": 0.8}, [], tmp_path / "curves.png")
    assert [text.get_text().split()[0] for text in drawn[0].axes[0].texts] == ["@1", "@10", "@1000"]


def test_of_many_recalls_the_first_four_are_drawn(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_curves({f"recall@{k}": 0.9 for k in (1, 2, 4, 8, 10, 100)}, [], tmp_path / "curves.png")
    assert [text.get_text().split()[0] for text in drawn[0].axes[0].texts] == ["@1", "@2", "@4", "@8"]


def test_numbers_that_are_none_are_left_out(tmp_path: Path, drawn: list[Figure]) -> None:
    history = epochs(3)
    history[2]["contrastive"] = math.nan
    for row in history:
        row["distillation"] = math.inf
    plot_curves({}, history, tmp_path / "curves.png")
    contrastive, distillation = drawn[0].axes[:2]
    assert xs(contrastive) == [1, 2]
    assert contrastive.texts[0].get_text().endswith("at epoch 2")
    assert distillation.texts[0].get_text() == "no finite value"


def bands(axes: Axes) -> list[tuple[float, float]]:
    """How far each band reaches."""
    heights = [np.asarray(band.get_paths()[0].vertices)[:, 1] for band in axes.collections]
    return [(float(column.min()), float(column.max())) for column in heights]


def test_scores_have_the_noise_of_few_photos_and_losses_their_scatter(tmp_path: Path, drawn: list[Figure]) -> None:
    losses = [0.9, 0.7, 0.9, 0.7, 0.9, 0.7]
    history = [{"epoch": n, "contrastive": loss, "recall@1": 0.5} for n, loss in enumerate(losses, 1)]
    for queries in (100, 10_000):
        plot_curves({}, history, tmp_path / "curves.png", queries)
    for figure, reach in zip(drawn, (10, 1), strict=True):
        ((low, high),) = bands(figure.axes[1])
        assert (50 - low, high - 50) == pytest.approx((reach, reach), rel=0.05)
        ((low, high),) = bands(figure.axes[0])
        assert low < 0.3 < 1.3 < high


def test_no_axis_makes_a_small_change_look_like_a_crash(tmp_path: Path, drawn: list[Figure]) -> None:
    history = [{"epoch": n, "contrastive": 0.9 - 0.001 * n, "recall@1": 0.5 - 0.001 * n} for n in range(1, 4)]
    plot_curves({}, history, tmp_path / "curves.png")
    plot_curves({}, [{"epoch": 1, "loss": -0.9}, {"epoch": 2, "loss": -0.901}], tmp_path / "curves.png")
    for axes, whole in zip([*drawn[0].axes, *drawn[1].axes], (0.8, 4.9, 0.9), strict=True):
        low, high = axes.get_ylim()
        assert high - low > whole
        assert low < min(ys(axes)) < max(ys(axes)) < high


def test_the_charts_of_a_page_are_those_of_the_picture() -> None:
    charts = draw_charts(START, epochs(3))
    assert [title.split(" –")[0] for title, _ in charts][:3] == [
        "Contrastive loss",
        "Distillation loss",
        "Effective rank",
    ]
    assert all(image.width > 400 for _, image in charts)


def test_no_global_state_of_pyplot_is_touched(tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    plot_curves({"recall@1": 0.5}, [], tmp_path / "curves.png")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_lines_of_fractions_are_percent_and_named_at_their_ends(tmp_path: Path) -> None:
    rows = [{"epoch": 0, "a": 0.5, "b": 0.6}, {"epoch": 10, "a": 0.7}, {"epoch": 20, "a": 0.9, "b": 0.8}]
    figure = draw_lines(rows, {"a": "first", "b": "second"}, "Scores")
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
