"""Figure 4: Recall@1 against k and σ, as a picture and as numbers."""

from pathlib import Path

from matplotlib.axes import Axes

from selftaught.files import write_atomically
from selftaught.report import FAINT, INK, LINE_COLORS, new_figure, style_axes
from selftaught.reproduce.analysis import DEFAULT_K, DEFAULT_SIGMA, KS, SIGMAS
from selftaught.reproduce.cells import Cells
from selftaught.reproduce.table import Table
from selftaught.reproduce.text import DATASETS

PICTURE, NUMBERS = "sensitivity.png", "sensitivity.csv"
_AXES = {"k": (KS, DEFAULT_K, "k"), "sigma": (SIGMAS, DEFAULT_SIGMA, "σ")}
Points = dict[tuple[str, str], list[tuple[float, float]]]
"""By data set and parameter: its values, each with Recall@1 in percent."""


def write_sensitivity(table: Table, cells: Cells, out: Path) -> None:
    """Draw the points that exist so far, and write their numbers."""
    points: Points = {}
    for dataset in table.columns:
        for name, (values, default, _) in _AXES.items():
            for value in values:
                row = cells.get("default" if value == default else f"{name}-{value:g}", {})
                mean = row[dataset]["recall@1"].mean if dataset in row else None
                if mean is not None:
                    points.setdefault((dataset, name), []).append((value, mean))
    lines = [f"{data},{name},{x:g},{y:.4f}" for (data, name), pairs in points.items() for x, y in pairs]
    write_atomically(out / NUMBERS, "\n".join(["data,parameter,value,recall@1", *lines]) + "\n")
    figure = new_figure(9, 3.6)
    for place, (name, (values, default, symbol)) in enumerate(_AXES.items(), start=1):
        axes = figure.add_subplot(1, len(_AXES), place)
        for dataset, color in zip(table.columns, LINE_COLORS, strict=False):
            _draw(axes, points.get((dataset, name), []), default, DATASETS[dataset], color)
        _frame(axes, values, symbol)
    write_atomically(out / PICTURE, lambda file: figure.savefig(file, format="png"))


def _draw(axes: Axes, pairs: list[tuple[float, float]], default: float, label: str, color: str) -> None:
    if not pairs:
        return
    xs, ys = zip(*pairs, strict=True)
    axes.plot(xs, ys, color=color, linewidth=1.8, marker="o", markersize=4, zorder=3)
    axes.annotate(
        label,
        pairs[-1],
        (6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=color,
        annotation_clip=False,
    )
    for x, y in pairs:
        if x == default:  # the default setting is marked, as in the paper's figure
            axes.plot(x, y, "o", color=color, markersize=9, zorder=4)


def _frame(axes: Axes, values: tuple[float, ...], symbol: str) -> None:
    axes.set_title(f"Recall@1 against {symbol}", loc="left", fontsize=10, fontweight="bold", color=INK, pad=9)
    axes.set_xlim(0, max(values) * 1.03)
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xlabel(symbol, fontsize=8, color=FAINT)
    style_axes(axes, percent=True)
