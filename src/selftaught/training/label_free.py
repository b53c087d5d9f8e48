"""Signals that need no labels: is the embedding alive, and does it recognize an image?"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from selftaught.devices import exact_dtype
from selftaught.retrieval import nearest

PROBES, FEWEST_PROBES = 256, 100
"""The number of images that signals are measured on, in large and in small folders: it costs time in every epoch."""
BLOCK_BYTES = 64 * 2**20
"""Memory for the rows that are summed at once in float64."""


def effective_rank(embeddings: Tensor) -> float:
    """How many directions the embeddings use: exp of the entropy of their normalized singular values, after centering.

    Args:
        embeddings: n×d, on any device; they stay there.

    Example:
        >>> round(effective_rank(torch.eye(5)), 3), effective_rank(torch.ones(5, 3))
        (4.0, 0.0)
    """
    work = exact_dtype(embeddings.device)
    blocks = embeddings.detach().split(max(1, BLOCK_BYTES // (8 * max(1, embeddings.shape[1]))))
    mean = sum(block.sum(0, dtype=work) for block in blocks) / len(embeddings)
    scatter = mean.new_zeros(len(mean), len(mean))
    for block in blocks:
        centered = block.to(work) - mean
        scatter.addmm_(centered.T, centered)
    if scatter.device.type == "mps":  # Apple's GPUs compute no spectra
        scatter = scatter.cpu().double()
    if not bool(torch.isfinite(scatter).all()):
        return math.nan
    spectrum = torch.linalg.eigvalsh(scatter).clamp(min=0).sqrt()
    total = float(spectrum.sum())
    low, high = embeddings.aminmax()
    if total <= 1e-12 * max(1.0, -float(low), float(high)):
        return 0.0
    p = spectrum / total
    return float(torch.special.entr(p).sum().exp())


def probes_of(images: int) -> int:
    """The number of images that the signals are measured on, out of ``images``.

    Example:
        >>> probes_of(30), probes_of(1600), probes_of(10**6)
        (30, 200, 256)
    """
    return min(images, PROBES, max(FEWEST_PROBES, images // 8))


def view_agreement(first: Tensor, second: Tensor, gallery: Tensor, own: Tensor) -> float:
    """How often one view of an image is nearer to its other view than to every other training image.

    Args:
        first, second: p×d embeddings of two views of p images.
        gallery: n×d embeddings of all training images.
        own: the gallery row of each of the p images.
    """
    others, _ = nearest(first, gallery, 1, exclude=own)
    return float(((first - second).norm(dim=1) < others[:, 0]).float().mean())


def symptom(
    start: Mapping[str, float], now: Mapping[str, float], images: int, groups_images: bool = False
) -> str | None:
    """What is wrong with the embedding, in words, or None if it is alive.

    With ``groups_images`` views do not count: images of one class may rightly lie on one point.
    """
    numbers = ("loss", "contrastive", "distillation", "effective_rank", "view_agreement")
    if not all(math.isfinite(now[name]) for name in numbers if name in now):
        return "the loss or the embedding is no longer a number"
    rank, first_rank = now["effective_rank"], start["effective_rank"]
    if rank < max(1.5, 0.05 * first_rank) and rank < 0.5 * first_rank:
        return f"the embedding uses {rank:.1f} directions (effective rank), {first_rank:.1f} at the start"
    if groups_images:
        return None
    agreement, first_agreement = now["view_agreement"], start["view_agreement"]
    if agreement < max(2 / images, 0.1 * first_agreement) and agreement < 0.5 * first_agreement:
        return f"one view of an image finds its other view in {agreement:.1%}, at the start in {first_agreement:.1%}"
    return None
