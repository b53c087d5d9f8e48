"""The tables that are pictures too: Recall@1 against k and σ, and against the share of classes with labels."""

from pathlib import Path
from typing import Any

from selftaught.files import write_atomically
from selftaught.report import FAINT, INK, LINE_COLORS, new_figure, style_axes
from selftaught.reproduce.cells import Cells
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.paper import DEFAULT_K, DEFAULT_SIGMA, KS, SIGMAS
from selftaught.reproduce.table import Table
from selftaught.reproduce.tables import KINDS, PERCENT, SHARES
from selftaught.reproduce.text import DATASETS

_LINE: dict[str, Any] = {"linewidth": 1.8, "marker": "o", "markersize": 4}
_LABEL: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8, "annotation_clip": False}


def write_sensitivity(table: Table, cells: Cells, out: Path) -> None:
    """Draw the points of Figure 4 that exist so far, and write their numbers."""
    numbers = []
    figure = new_figure(9, 3.6)
    parameters = (("k", "k", KS, DEFAULT_K), ("sigma", "σ", SIGMAS, DEFAULT_SIGMA))
    for place, (name, symbol, values, default) in enumerate(parameters, start=1):
        axes = figure.add_subplot(1, len(parameters), place)
        for dataset, color in zip(table.columns, LINE_COLORS, strict=False):
            points = []
            for value in values:
                row = cells.get("default" if value == default else f"{name}-{value:g}", {})
                mean = row[dataset]["recall@1"].mean if dataset in row else None
                if mean is not None:
                    points.append((value, mean))
                    numbers.append((dataset, name, f"{value:g}", f"{mean:.4f}"))
                    if value == default:  # it is marked, as in the paper's figure
                        axes.plot(value, mean, "o", color=color, markersize=9, zorder=4)
            if points:
                axes.plot(*zip(*points, strict=True), color=color, zorder=3, **_LINE)
                axes.annotate(DATASETS[dataset], points[-1], (6, 0), color=color, **_LABEL)
        axes.set_xlim(0, max(values) * 1.03)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xlabel(symbol, fontsize=8, color=FAINT)
        style_axes(axes, f"Recall@1 against {symbol}", percent=True)
    Drawing(figure, ["data", "parameter", "value", "recall@1"], numbers).write(out, "sensitivity")


def write_shares(cells: Cells, dataset: str, out: Path) -> None:
    """Draw the points that exist so far; a band shows the deviation over seeds."""
    figure = new_figure(7, 4)
    axes = figure.add_subplot()
    for (kind, (label, _, _)), color in zip(KINDS.items(), LINE_COLORS, strict=False):
        found = []
        for percent in (0, *PERCENT, 100):
            cell = cells.get(f"{kind}-{percent}", {}).get(dataset, {}).get("recall@1")
            if cell is not None and cell.mean is not None:
                found.append((percent, cell.mean, cell.deviation or 0.0))
        if found:
            xs, ys, spread = zip(*found, strict=True)
            axes.plot(xs, ys, color=color, label=label, **_LINE)
            low, high = ([y + sign * d for y, d in zip(ys, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set_xticks((0, *PERCENT, 100))
    axes.xaxis.set_major_formatter("{x:g}%")
    style_axes(axes, SHARES.title, percent=True)
    if axes.lines:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right")
    write_atomically(out / "shares.png", lambda file: figure.savefig(file, format="png"))
