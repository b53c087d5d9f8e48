"""Fig. 3: how well each similarity tells pairs of one class from the rest, over training."""

from collections.abc import Sequence
from pathlib import Path

from selftaught.report import plot_lines
from selftaught.reproduce.figures.files import save_table
from selftaught.reproduce.figures.gallery import Gallery
from selftaught.reproduce.figures.observe import BATCHES, EpochResult
from selftaught.reproduce.figures.relations import NAMES


def draw_auroc(_: Gallery, seen: Sequence[EpochResult], out: Path) -> list[Path]:
    """AUROC of class equivalence, over pairs of rows that show different images, the mean of BATCHES batches."""
    rows = [{"epoch": float(o.epoch), **o.similarities.auroc} for o in seen if o.similarities is not None]
    picture, table = out / "auroc.png", out / "auroc.csv"
    title = f"AUROC of class equivalence – mean of {BATCHES} batches"
    plot_lines(rows, NAMES, picture, title=title)
    save_table(table, ["epoch", *NAMES], ([int(row["epoch"]), *(row[name] for name in NAMES)] for row in rows))
    return [picture, table]
