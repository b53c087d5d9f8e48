"""Fig. 3: how well each similarity tells pairs of one class from the rest, over training."""

from collections.abc import Sequence

from selftaught.report import draw_lines
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.figures.gallery import Gallery
from selftaught.reproduce.figures.observe import BATCHES, EpochResult
from selftaught.reproduce.figures.relations import NAMES


def draw_auroc(_: Gallery, seen: Sequence[EpochResult]) -> Drawing:
    """AUROC of class equivalence, over pairs of rows that show different images, the mean of BATCHES batches."""
    rows = [{"epoch": float(o.epoch), **o.similarities.auroc} for o in seen if o.similarities is not None]
    picture = draw_lines(rows, NAMES, f"AUROC of class equivalence – mean of {BATCHES} batches")
    return Drawing(picture, ["epoch", *NAMES], ([int(row["epoch"]), *(row[name] for name in NAMES)] for row in rows))
