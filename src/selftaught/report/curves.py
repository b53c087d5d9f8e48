"""The course of a training run in one picture."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from selftaught.files import write_atomically
from selftaught.report.noise import chance, scatter

LINE_COLORS = ("#1f4e9c", "#d9730d", "#1a7f37", "#8250df", "#bf3989", "#57606a")
INK, FAINT = "#24292f", "#8c959f"
COLUMNS = 3
LEAST_POINTS = 5.0
"""The smallest range of an axis of percentages, in points: a small change should look small."""


@dataclass(frozen=True)
class Panel:
    """One small chart: a title that says what good looks like, and the keys it shows by their names.

    What is no percentage has an axis that begins at 0.
    """

    title: str
    names: Mapping[str, str]
    percent: bool = False


def plot_curves(
    start: Mapping[str, float], history: Sequence[Mapping[str, float]], path: Path, queries: int = 0
) -> None:
    """Draw how the losses, the signals without labels and, with labels, the scores went, as a PNG.

    A band around each line is two standard deviations of its noise wide to either side.

    Args:
        start: the signals before training, the effective rank among them, drawn as a hollow dot at epoch 0.
        history: one row per epoch with its number under "epoch". What a row lacks is left out of its chart,
            and a chart without any value is left out altogether.
        path: the PNG to write; one that exists is replaced.
        queries: the number of photos that scores are measured on, which decides their noise.
    """
    rows = [{**start, "epoch": 0}, *history]
    panels = _panels(rows)
    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(4 * columns, 2.6 * lines)
    for place, panel in enumerate(panels, start=1):
        draw_panel(figure.add_subplot(lines, columns, place), panel, rows, queries)
    write_atomically(path, lambda file: figure.savefig(file, format="png"))


def draw_charts(
    start: Mapping[str, float], history: Sequence[Mapping[str, float]], queries: int = 0
) -> list[tuple[str, Image.Image]]:
    """The same charts one by one, each with its title, for a page that arranges them by its width."""
    rows, charts = [{**start, "epoch": 0}, *history], []
    for panel in _panels(rows):
        figure = Figure(figsize=(4.6, 2.6), dpi=130, layout="constrained", facecolor="white")
        draw_panel(figure.add_subplot(), panel, rows, queries)
        content = io.BytesIO()
        figure.savefig(content, format="png")
        charts.append((panel.title, Image.open(content).convert("RGB")))
    return charts


def draw_lines(rows: Sequence[Mapping[str, float]], names: Mapping[str, str], title: str) -> Figure:
    """Draw fractions over the epochs, in percent, one line for each key of ``names`` under its name there."""
    figure = new_figure(7, 4)
    draw_panel(figure.add_subplot(), Panel(title, names, percent=True), rows)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, with space around its parts."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # type: ignore[union-attr, call-arg]
    return figure


def _panels(rows: Sequence[Mapping[str, float]]) -> list[Panel]:
    recalls = sorted({key for row in rows for key in row if key.startswith("recall@")}, key=lambda key: int(key[7:]))
    parts = any("contrastive" in row for row in rows)  # then the whole loss is not drawn
    panels = [
        *([] if parts else [Panel("Loss", {"loss": ""})]),
        Panel("Contrastive loss", {"contrastive": ""}),
        Panel("Distillation loss", {"distillation": ""}),
        Panel("Effective rank – should not fall to 1", {"effective_rank": ""}),
        # The first ones: further ones are near 100% in small collections, and their bands cover these.
        Panel("Recall – should rise", {key: f"@{key[7:]}" for key in recalls[:4]}, percent=True),
        Panel("MAP@R, R-Precision – should rise", {"map@r": "MAP@R", "r_precision": "R-Prec."}, percent=True),
    ]
    return [panel for panel in panels if any(name in row for row in rows for name in panel.names)]


def draw_panel(axes: Axes, panel: Panel, rows: Sequence[Mapping[str, float]], queries: int = 0) -> None:
    """Draw a chart. ``queries``: the number of photos that percentages are measured on, 0 if unknown."""
    scale, last = 100 if panel.percent else 1, max(row["epoch"] for row in rows)
    ends, widest, smallest = [], 0.0, 0.0
    for (key, name), color in zip(panel.names.items(), LINE_COLORS * len(panel.names), strict=False):
        points = [(row["epoch"], scale * row[key]) for row in rows if math.isfinite(row.get(key, math.nan))]
        if not points:
            continue
        epochs, values = zip(*points, strict=True)
        noise = [scatter(values)] * len(values)
        if panel.percent and queries:
            noise = [max(scale * chance(value / scale, queries), noise[0]) for value in values]
        widest, smallest = max(widest, *noise), min(smallest, *values)
        low, high = ([v + side * n for v, n in zip(values, noise, strict=True)] for side in (-2, 2))
        axes.fill_between(epochs, low, high, color=color, alpha=0.12, linewidth=0, zorder=2)
        dots = "o" if len(points) <= 30 else ""
        axes.plot(epochs, values, color=color, linewidth=1.8, marker=dots, markersize=3.5, clip_on=False, zorder=3)
        if epochs[0] == 0:
            axes.plot(0, values[0], "o", color=color, markerfacecolor="white", markersize=5, clip_on=False, zorder=4)
        until = f" at epoch {epochs[-1]:g}" if epochs[-1] < last else ""
        ends.append((values[-1], f"{name} {_number(values[-1], panel.percent)}{until}".strip(), color))
    _frame(axes, panel, last, smallest, max(8 * widest, LEAST_POINTS))
    if ends:
        _label(axes, ends)
    else:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no finite value", transform=axes.transAxes, ha="center", va="center", color=FAINT)


def _frame(axes: Axes, panel: Panel, last: float, smallest: float, least: float) -> None:
    """Axes, grid and title. Percentages span ``least`` or more; other axes begin at 0, unless ``smallest`` is less."""
    axes.set_xlim(0, max(1, last))
    low, high = axes.get_ylim()
    if panel.percent:
        middle = (low + high) / 2
        low, high = min(low, middle - least / 2), min(101, max(high, middle + least / 2))
    else:
        low, high = low if smallest < 0 else 0, max(0, 1.15 * high)
    axes.set_ylim(low, high)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("epoch", fontsize=8, color=FAINT)
    style_axes(axes, panel.title, percent=panel.percent)


def style_axes(axes: Axes, title: str, *, percent: bool = False) -> None:
    """Give axes a title, a quiet frame and a grid; ``percent``: the vertical axis is in percent."""
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, pad=9)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if percent:
        axes.yaxis.set_major_formatter("{x:g}%")
    axes.tick_params(labelsize=8, color=FAINT, labelcolor=INK)
    axes.grid(color="#eaeef2")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)


def _label(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """The last value of each line beside its end, moved apart where lines end close together."""
    low, high = axes.get_ylim()
    height, apart = -1.0, 0.085
    ordered = sorted(ends)
    for below, (value, text, color) in enumerate(ordered):
        above = len(ordered) - 1 - below
        height = max(min((value - low) / (high - low), 1 - apart * above), height + apart, apart * below)
        axes.text(1.03, height, text, transform=axes.transAxes, va="center", fontsize=8, color=color)


def _number(value: float, percent: bool) -> str:
    if percent:
        return f"{value:.1f}%"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
