"""The value of labels: Recall@1 against the share of the training classes that have labels."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from selftaught.files import write_atomically
from selftaught.report import INK, LINE_COLORS, style_axes
from selftaught.reproduce.cells import Cells
from selftaught.reproduce.table import FOLDER, Row, Table, Uses

PICTURE = "shares.png"
PERCENT = (10, 25, 50)
_KINDS: dict[str, tuple[str, dict[str, Any], Uses]] = {
    "ms": ("Multi-Similarity on the labels", {"method": "multi-similarity", "both_heads": True}, "labeled"),
    "slade": ("then SLADE on all images", {"method": "slade", "recipe": "semi"}, "both"),
    "stml": ("then STML on all images", {"method": "stml", "recipe": "semi"}, "both"),
}
"""By name: label, settings, images."""
_ENDS = {"stml": (0, "STML", {"method": "stml"}), "ms": (100, *_KINDS["ms"][:2])}
"""The points with only one kind of image: without labels, or all with labels."""


def _row(kind: str, percent: int, label: str, settings: dict[str, Any], uses: Uses) -> Row:
    name, group = f"{kind}-{percent}", f"{percent}% of the classes with labels"
    return Row(name, f"{label}, {percent}%", "", group, {}, settings, uses=uses, share=percent)


SHARES = Table(
    "shares",
    "Recall@1 against the share of classes with labels",
    {FOLDER: ("recall@1", "map@r", "r_precision")},
    (
        _row("stml", *_ENDS["stml"], "train"),
        *(_row(kind, percent, *row) for percent in PERCENT for kind, row in _KINDS.items()),
        _row("ms", *_ENDS["ms"], "train"),
    ),
    "The classes with labels are the first in alphabetical order. Supervised rows are the first stage of the others.",
)


def write_shares(cells: Cells, dataset: str, out: Path) -> None:
    """Draw the points that exist so far; a band shows the deviation over seeds."""
    figure = Figure(figsize=(7, 4), dpi=150, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    for (kind, (label, _, _)), color in zip(_KINDS.items(), LINE_COLORS, strict=False):
        found = []
        for percent in (0, *PERCENT, 100):
            cell = cells.get(f"{kind}-{percent}", {}).get(dataset, {}).get("recall@1")
            if cell is not None and cell.mean is not None:
                found.append((percent, cell.mean, cell.deviation or 0.0))
        if found:
            xs, ys, spread = zip(*found, strict=True)
            axes.plot(xs, ys, color=color, linewidth=1.8, marker="o", markersize=4, label=label)
            low, high = ([y + sign * d for y, d in zip(ys, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(xs, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set_title(SHARES.title, loc="left", fontsize=10, fontweight="bold", color=INK, pad=9)
    axes.set_xticks((0, *PERCENT, 100))
    axes.xaxis.set_major_formatter("{x:g}%")
    style_axes(axes, percent=True)
    if axes.lines:
        axes.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right")
    write_atomically(out / PICTURE, lambda file: figure.savefig(file, format="png"))
