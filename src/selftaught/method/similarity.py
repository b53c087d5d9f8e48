"""Step 2: contextualized semantic similarity of the teacher's embeddings (Eqs. 5–10). No gradient flows here."""

import torch
from torch import Tensor
from torch.nn import functional as F

from selftaught.method.precision import in_full_precision


@torch.no_grad()
@in_full_precision
def pairwise_similarity(teacher: Tensor, sigma: float = 3.0) -> Tensor:
    """Eq. 5: w^P_ij = exp(-‖t_i - t_j‖² / σ), t the L2-normalized teacher embedding.

    Args:
        teacher: n×d, not normalized.
        sigma: σ, the bandwidth of the Gaussian kernel.

    Returns:
        n×n, symmetric, within (0, 1], 1 on the diagonal.

    Example:
        >>> import torch
        >>> pairwise_similarity(torch.tensor([[2.0, 0.0], [0.0, 5.0]]), sigma=2.0)
        tensor([[1.0000, 0.3679],
                [0.3679, 1.0000]])
    """
    t = F.normalize(teacher)
    cosine = t @ t.T
    # A product of a matrix with its own transpose need not be symmetric to the last bit; a sum with the transpose is.
    squared = (2 - (cosine + cosine.T)).clamp(min=0)
    return (squared / -sigma).exp().fill_diagonal_(1)


def contextual_similarity(teacher: Tensor, k: int, ids: Tensor | None = None) -> Tensor:
    """Eqs. 6–9: how much the k-reciprocal neighborhoods of two rows overlap.

    Args:
        teacher: n×d, not normalized.
        k: size of a neighborhood, the row itself included; at most n.
        ids: n image indices. Rows of one image are then nearest to each other, whatever their distance.

    Returns:
        n×n, symmetric, within [0, 1].

    Example:
        >>> import torch
        >>> contextual_similarity(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]), k=2)
        tensor([[1., 1., 0., 0.],
                [1., 1., 0., 0.],
                [0., 0., 1., 1.],
                [0., 0., 1., 1.]])
    """
    return contextual_from_pairwise(pairwise_similarity(teacher, sigma=1.0), k, ids)


def contextualized_similarity(teacher: Tensor, k: int, sigma: float = 3.0, ids: Tensor | None = None) -> Tensor:
    """Eq. 10: the mean of pairwise and contextual similarity, the soft label of every pair in a batch.

    Args:
        teacher: n×d, not normalized.
        k: size of a neighborhood, the row itself included; at most n.
        sigma: σ, the bandwidth of the Gaussian kernel.
        ids: n image indices. Rows of one image are then nearest to each other in the contextual part.

    Returns:
        n×n, symmetric, within [0, 1].

    Example:
        >>> import torch
        >>> contextualized_similarity(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), k=1, sigma=2.0)
        tensor([[1.0000, 0.1839],
                [0.1839, 1.0000]])
    """
    pairwise = pairwise_similarity(teacher, sigma)
    return (pairwise + contextual_from_pairwise(pairwise, k, ids)) / 2


@torch.no_grad()
@in_full_precision
def contextual_from_pairwise(similarity: Tensor, k: int, ids: Tensor | None = None) -> Tensor:
    """The contextual similarity from any n×n similarity that is at most 1 and ranks as w^P does."""
    n = len(similarity)
    if not 1 <= k <= n:
        raise ValueError(f"k = {k} neighbors are more than the batch of {n} rows, or fewer than one")
    # A row is nearest to itself, then to the other rows of its image (by their true similarity), then to the rest.
    closeness = similarity.clone() if ids is None else similarity + (ids[:, None] == ids)
    closeness.diagonal().add_(2)
    neighbors = closeness.topk(k, dim=1).indices
    within = torch.zeros_like(closeness).scatter_(1, neighbors, 1)
    reciprocal = within * within.T  # Eq. 6, as the indicator matrix V
    size = reciprocal.sum(1, keepdim=True).clamp(min=1)
    overlap = (reciprocal @ reciprocal) * reciprocal / size  # Eq. 7; V is symmetric
    # Eq. 8, with banker's rounding: the mean of the rows of the nearest, without copying them.
    expanded = F.embedding_bag(neighbors[:, : max(1, round(k / 2))], overlap, mode="mean")
    return (expanded + expanded.T) / 2  # Eq. 9
