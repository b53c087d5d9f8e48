"""A few lines over the epochs of a run, on one chart."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from selftaught.files import write_atomically
from selftaught.report.curves import Panel, draw_panel


def plot_lines(
    rows: Sequence[Mapping[str, float]], names: Mapping[str, str], path: Path, *, title: str, percent: bool = False
) -> None:
    """Draw one line per name over the epochs, its name and last value beside its end, as a PNG.

    Args:
        rows: one per point in time, its epoch under "epoch". A value that is missing or not a number is left out.
        names: the keys to draw, with the names to show.
        path: the PNG to write; one that exists is replaced.
        percent: the values are fractions, drawn in percent.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     rows = [{"epoch": 0, "auroc": 0.71}, {"epoch": 10, "auroc": 0.86}]
        ...     plot_lines(rows, {"auroc": "pairwise"}, Path(folder, "a.png"), title="AUROC", percent=True)
    """
    figure = Figure(figsize=(7, 4), dpi=150, layout="constrained", facecolor="white")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # type: ignore[union-attr, call-arg]
    draw_panel(figure.add_subplot(), Panel(title, names, percent), rows)
    write_atomically(path, lambda file: figure.savefig(file, format="png"))
