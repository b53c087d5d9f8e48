"""The similarities of pairs of images: how well they tell classes apart during training, and one against another."""

from collections.abc import Sequence

from selftaught.report import FAINT, FRAME_COLORS, INK, draw_lines, new_figure, style_axes
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.figures.labeled_images import LabeledImages
from selftaught.reproduce.figures.observe import BATCHES, EpochResult
from selftaught.reproduce.figures.relations import NAMES, pairs


def draw_auroc(_: LabeledImages, seen: Sequence[EpochResult]) -> Drawing:
    """Fig. 3: AUROC of class equivalence, over pairs of rows that show different images, as a mean over batches."""
    rows = [{"epoch": float(o.epoch), **o.similarities.auroc} for o in seen if o.similarities is not None]
    title = f"AUROC of class equivalence – mean of {BATCHES} batches"
    picture = draw_lines(rows, {name: name for name in NAMES}, title)
    return Drawing(picture, ["epoch", *NAMES], ([int(row["epoch"]), *(row[name] for name in NAMES)] for row in rows))


def draw_scatter(labeled: LabeledImages, seen: Sequence[EpochResult]) -> Drawing:
    """w^P against w^C for the pairs of different images in one batch of the last epoch, colored by class equivalence.

    Lines of equal w = (w^P + w^C) / 2 run from upper left to lower right.
    """
    last = seen[-1]
    assert last.similarities is not None
    relations = last.similarities.relations
    first, second = pairs(relations)
    values = relations.w[:, first, second]
    one, other = relations.ids[first], relations.ids[second]
    same = labeled.classes[one] == labeled.classes[other]
    figure = new_figure(6, 5.2)
    axes = figure.add_subplot()
    kinds = ((~same, "two classes", FRAME_COLORS["wrong"], 5), (same, "one class", FRAME_COLORS["right"], 9))
    for kind, name, color, size in kinds:
        label = f"{int(kind.sum()):,} pairs of {name}"
        x, y, _ = values[:, kind].numpy()
        axes.scatter(x, y, size, color, alpha=0.55, linewidths=0, label=label, zorder=2)
    axes.set_ylim(-0.03, 1.03)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right)
    for level in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        axes.plot([left, right], [2 * level - left, 2 * level - right], color="#d0d7de", linewidth=0.8, zorder=1)
        if 0 < 2 * level - right < 1:
            axes.text(right, 2 * level - right, f" w = {level:g}", fontsize=8, color=FAINT, va="center")
    axes.set_xlabel("pairwise similarity", fontsize=9, color=INK)
    axes.set_ylabel("contextual similarity", fontsize=9, color=INK)
    style_axes(axes, f"{last.title}, one batch: every pair of images")
    axes.grid(visible=False)  # the lines of equal w are enough
    axes.legend(loc="upper left", fontsize=8, frameon=False, labelcolor=INK)
    files = labeled.images.files
    indices = zip(one.tolist(), other.tolist(), values.T.tolist(), same.tolist(), strict=True)
    rows = ([files[i], files[j], *w, int(equal)] for i, j, w, equal in indices)
    return Drawing(figure, ["path", "other_path", *NAMES, "same_class"], rows)
