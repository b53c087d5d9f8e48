"""The four cases of relation between two images: which of the two similarities is high."""

from collections.abc import Mapping, Sequence

import torch
from PIL import Image, ImageFont, ImageOps
from torch import Tensor

from selftaught.errors import counted
from selftaught.report import Frame, Tile, above, contact_sheet, font, text_line
from selftaught.reproduce.figures.drawing import Drawing
from selftaught.reproduce.figures.labeled_images import LabeledImages, pick_middles
from selftaught.reproduce.figures.observe import EpochResult
from selftaught.reproduce.figures.relations import NAMES, Relations, pairs

HIGH, LOW = 0.9, 0.75
"""Quantiles over the pairs of a batch: a similarity is high in the top tenth, low in the lower three quarters."""
CASES: Mapping[str, tuple[str, bool, bool]] = {
    "a": ("only the pairwise similarity is high", True, False),
    "b": ("both similarities are high", True, True),
    "c": ("both similarities are low", False, False),
    "d": ("only the contextual similarity is high", False, True),
}
"""Each case in words, and whether the pairwise and the contextual similarity are high in it."""
SHOWN = 6
TILE = 144


def find_cases(relations: Relations) -> dict[str, Tensor]:
    """Which pairs belong to each case, as positions into :func:`pairs`, by rising contextualized similarity.

    High is at or above the HIGH quantile of all pairs, low at or below the LOW quantile; a pair with a value
    between the two belongs to no case. If the two quantiles are equal, because many pairs are, nothing is high.
    """
    first, second = pairs(relations)
    *separate, w = relations.w[:, first, second].double()
    sides = []
    for values in separate:
        low, high = torch.quantile(values, torch.tensor([LOW, HIGH], dtype=torch.float64))
        sides.append({True: (values >= high) & (values > low), False: values <= low})
    found = {}
    for case, (_, pairwise, contextual) in CASES.items():
        members = (sides[0][pairwise] & sides[1][contextual]).nonzero()[:, 0]
        found[case] = members[w[members].argsort(stable=True)]
    return found


def draw_cases(labeled: LabeledImages, seen: Sequence[EpochResult]) -> Drawing:
    """Pairs of images from one batch after the last epoch, one above the other, evenly spaced by w within each case.

    Up to half of them are of one class, and come first: evenly drawn from all pairs, there would hardly be any.
    """
    last = seen[-1]
    assert last.similarities is not None
    relations = last.similarities.relations
    first, second = pairs(relations)
    sheets: list[Image.Image] = []
    rows: list[list[object]] = []
    files, labels = labeled.images.files, labeled.labels
    for case, members in find_cases(relations).items():
        same = labeled.classes[relations.ids[first[members]]] == labeled.classes[relations.ids[second[members]]]
        alike, others = members[same], members[~same]
        alike = alike[pick_middles(max(SHOWN // 2, SHOWN - len(others)), len(alike))]
        others = others[pick_middles(SHOWN - len(alike), len(others))]
        upper, lower = [], []
        for row, column in zip(*(side[torch.cat([alike, others])].tolist() for side in (first, second)), strict=True):
            one, other = int(relations.ids[row]), int(relations.ids[column])
            w = relations.w[:, row, column].tolist()
            right = labels[one] == labels[other]
            frame: Frame = "right" if right else "wrong"
            upper.append(Tile(labeled.paths[one], f"wᴾ {w[0]:.2f}  wᶜ {w[1]:.2f}", frame))
            lower.append(Tile(labeled.paths[other], f"w {w[2]:.2f}", frame))
            rows.append([case, files[one], labels[one], files[other], labels[other], *w, int(right)])
        count = f"{counted(len(same), 'pair')}, {float(same.double().mean()):.0%} of one class"
        heading = f"({case}) {CASES[case][0].capitalize()}: {count if upper else 'no such pair'}"
        shown = contact_sheet([upper, lower], headings={0: heading}, tile=TILE) if upper else None
        sheets.append(shown or _line(heading, font(TILE // 9, bold=True)))
    notes = (
        f"High: the top {1 - HIGH:.0%} of the batch's pairs. Low: the lower {LOW:.0%}. w is the mean of wᴾ and wᶜ.",
        "Pairs of one class are shown first, and more often than they occur.",
    )
    picture = above([*sheets, *(_line(note, font(TILE // 12)) for note in notes)])
    return Drawing(picture, ["case", "path", "label", "other_path", "other_label", *NAMES, "same_class"], rows)


def _line(text: str, face: ImageFont.FreeTypeFont) -> Image.Image:
    """A line of text with margins, aligned with the sheets."""
    gap = TILE // 10
    return ImageOps.expand(text_line(text, face, SHOWN * (TILE + gap) - gap), gap, "white")
