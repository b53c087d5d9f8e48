"""Step 2 of the method in one batch of labeled images: its similarities, and how well they agree with the labels."""

import math
from dataclasses import dataclass

import torch
from scipy.stats import rankdata
from torch import Tensor

from selftaught.learners import VIEWS, STMLSettings
from selftaught.method import contextual_from_pairwise, pairwise_similarity

NAMES = ("pairwise", "contextual", "contextualized")
"""The three similarities: w^P (Eq. 5), w^C (Eq. 9) and w (Eq. 10)."""


@dataclass(frozen=True)
class Relations:
    """The similarities of n rows."""

    ids: Tensor
    """n, the image that each row shows."""
    w: Tensor
    """3×n×n, in the order of NAMES."""


def relate(teacher: Tensor, ids: Tensor, settings: STMLSettings) -> Relations:
    """The similarities that a run with these settings computes from the teacher's n×d embeddings of a batch."""
    pairwise = pairwise_similarity(teacher, settings.sigma)
    k = VIEWS * settings.per_query
    contextual = contextual_from_pairwise(pairwise, k, ids if settings.group_views else None)
    return Relations(ids, torch.stack([pairwise, contextual, (pairwise + contextual) / 2]))


def between_images(relations: Relations) -> Relations:
    """One row per image instead of one per view: the mean over all views of two images."""
    ids, rows = relations.ids.unique(return_inverse=True)
    share = torch.zeros(len(ids), len(rows), dtype=relations.w.dtype, device=rows.device)
    share[rows, torch.arange(len(rows), device=rows.device)] = 1
    share /= share.sum(1, keepdim=True)
    return Relations(ids, share @ relations.w @ share.T)


def pairs(relations: Relations) -> tuple[Tensor, Tensor]:
    """Each pair of rows that show different images, once: their row numbers."""
    first, second = torch.triu_indices(len(relations.ids), len(relations.ids), 1, device=relations.ids.device)
    different = relations.ids[first] != relations.ids[second]
    return first[different], second[different]


def auroc(scores: Tensor, positive: Tensor) -> float:
    """The chance that a positive scores higher than a negative, ties counted half; NaN if either kind is missing.

    Args:
        scores: n.
        positive: n, boolean.

    Example:
        >>> auroc(torch.tensor([0.9, 0.4, 0.4, 0.1]), torch.tensor([True, True, False, False]))
        0.875
    """
    p = int(positive.sum())
    n = len(positive) - p
    if p == 0 or n == 0:
        return math.nan
    ranks = rankdata(scores.cpu().numpy())
    return float(ranks[positive.cpu().numpy()].sum() - p * (p + 1) / 2) / (p * n)


def aurocs(relations: Relations, classes: Tensor) -> dict[str, float]:
    """How well each similarity tells pairs of one class from pairs of two; ``classes`` has one number per image."""
    first, second = pairs(relations)
    of_rows = classes[relations.ids]
    same = of_rows[first] == of_rows[second]
    return {name: auroc(w, same) for name, w in zip(NAMES, relations.w[:, first, second], strict=True)}
