"""Step 3: the student learns the similarities (Eqs. 1–3). Embeddings are never normalized."""

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from selftaught.method.precision import in_full_precision
from selftaught.method.similarity import contextual_from_pairwise, pairwise_similarity

Reduction = Literal["pairs", "samples"]
Similarity = Literal["contextualized", "pairwise", "contextual"]


class _Distances(torch.autograd.Function):
    """‖z_i - z_j‖ of all pairs, with distance 0 and gradient 0 where rows coincide.

    The gradient is written out, so that it takes one product with z where autograd's own takes two.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = z - z.mean(0)
        norms = z.square().sum(1)
        scale = norms[:, None] + norms
        squared = torch.addmm(scale, z, z.T, alpha=-2)
        # Below this, the difference is only rounding.
        apart = (squared > 16 * torch.finfo(z.dtype).eps * scale).fill_diagonal_(False)
        distances = squared.clamp(min=0).sqrt() * apart
        ctx.save_for_backward(z, distances)
        return distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        z, distances = ctx.saved_tensors
        with torch.autocast(gradient.device.type, enabled=False):
            force = (gradient / distances).masked_fill(distances == 0, 0)
            force = force + force.T  # a pair pulls on both its rows
            return force.sum(1, keepdim=True) * z - force @ z  # type: ignore[no-any-return]


@in_full_precision
def relative_distances(embeddings: Tensor) -> Tensor:
    """d_ij = ‖z_i - z_j‖ over the mean of row i, the zero diagonal included; gradient flows through the mean.

    Finite, with a finite gradient, even if rows coincide: such a pair has distance 0 and gradient 0.
    """
    distances = _Distances.apply(embeddings)
    mean = distances.mean(1, keepdim=True)
    return distances / mean.masked_fill(mean == 0, 1)  # type: ignore[no-any-return]


def relaxed_contrastive_loss(
    embeddings: Tensor, weights: Tensor, delta: float = 1.0, reduction: Reduction = "pairs"
) -> Tensor:
    """Eq. 1: pull pairs together by w, push them apart to the margin δ by 1 - w.

    Args:
        embeddings: n×d, not normalized.
        weights: n×n soft labels within [0, 1], such as :func:`contextualized_similarity`.
        delta: δ, the margin in units of a row's mean distance.
        reduction: divide the sum over pairs by n(n - 1) ("pairs", the authors' code) or by n ("samples", the paper).

    Example:
        >>> import torch
        >>> relaxed_contrastive_loss(torch.tensor([[0.0], [1.0]]), torch.eye(2), delta=1.0)
        tensor(0.)
        >>> relaxed_contrastive_loss(torch.tensor([[0.0], [1.0]]), torch.ones(2, 2), delta=1.0)
        tensor(4.)
    """
    if reduction not in get_args(Reduction):
        raise ValueError(f"unknown reduction {reduction!r}: give one of {', '.join(get_args(Reduction))}")
    return _contrastive(relative_distances(embeddings), weights, delta, reduction)


def distillation_loss(f: Tensor, g: Tensor, include_self: bool = True) -> Tensor:
    """Eq. 2: KL divergence of f's from g's softmax over negative relative distances; no gradient to g.

    Args:
        f: n×d_f, the embedding that learns.
        g: n×d_g, the embedding it learns from.
        include_self: let a row's distance to itself take part, as in the authors' code; the paper leaves it out.

    Example:
        >>> import torch
        >>> z = torch.randn(6, 4)
        >>> bool(distillation_loss(z, 3 * z).abs() < 1e-6)
        True
    """
    return _distillation(relative_distances(f), relative_distances(g.detach()), include_self)


class STMLLosses(NamedTuple):
    total: Tensor
    contrastive: Tensor
    distillation: Tensor


class STMLLoss(nn.Module):
    """Eq. 3: L = ½ [L_RC(f) + L_RC(g)] + L_KL(f, g), with the soft labels of the teacher shared by all.

    Args:
        k: size of a neighborhood: neighbors per query × views.
        sigma: σ of the pairwise similarity.
        delta: δ, the margin.
        reduction: see :func:`relaxed_contrastive_loss`.
        include_self: see :func:`distillation_loss`.
        group_views: let rows with the same id be nearest to each other (the authors' code); needs ``ids``.
        similarity: the soft labels: Eq. 10, or only one of its halves (the paper's ablation).
        distill: leave out L_KL if false (the paper's ablation).
        relaxed: if false, the soft labels are rounded to 0 or 1, which leaves the conventional contrastive loss (the
            paper's ablation; it does not name the threshold, ours is one half).

    The defaults are the authors' code; the paper's text is ``reduction="samples", include_self=False,
    group_views=False``.

    Example:
        >>> import torch
        >>> f, g, teacher = torch.randn(8, 4, requires_grad=True), torch.randn(8, 16), torch.randn(8, 16)
        >>> ids = torch.arange(4).repeat(2)  # two views of four images
        >>> losses = STMLLoss(k=4)(f, g, teacher, ids)
        >>> losses.total.backward()
        >>> bool((losses.total - losses.contrastive - losses.distillation).abs() < 1e-6)
        True
    """

    def __init__(
        self,
        k: int = 10,
        sigma: float = 3.0,
        delta: float = 1.0,
        reduction: Reduction = "pairs",
        include_self: bool = True,
        group_views: bool = True,
        similarity: Similarity = "contextualized",
        distill: bool = True,
        relaxed: bool = True,
    ) -> None:
        super().__init__()
        if sigma <= 0 or k < 1:
            raise ValueError(f"sigma must be positive and k at least 1, but they are {sigma} and {k}")
        if reduction not in get_args(Reduction) or similarity not in get_args(Similarity):
            raise ValueError(f"unknown reduction {reduction!r} or similarity {similarity!r}")
        self.k = k
        self.sigma = sigma
        self.delta = delta
        self.reduction: Reduction = reduction
        self.include_self = include_self
        self.group_views = group_views
        self.similarity: Similarity = similarity
        self.distill = distill
        self.relaxed = relaxed

    def weights(self, teacher: Tensor, ids: Tensor | None = None) -> Tensor:
        """The soft labels, n×n; 0 or 1 if not relaxed."""
        weights = pairwise = pairwise_similarity(teacher, self.sigma)
        if self.similarity != "pairwise":
            if self.group_views and ids is None:
                raise ValueError("ids are needed to know which rows show one image; or pass group_views=False")
            contextual = contextual_from_pairwise(pairwise, self.k, ids if self.group_views else None)
            weights = contextual if self.similarity == "contextual" else (pairwise + contextual) / 2
        return weights if self.relaxed else (weights >= 0.5).to(weights.dtype)

    def forward(self, f: Tensor, g: Tensor, teacher: Tensor, ids: Tensor | None = None) -> STMLLosses:
        weights = self.weights(teacher, ids)
        with torch.autocast(f.device.type, enabled=False):
            d_f, d_g = relative_distances(f), relative_distances(g)
            contrastive_f = _contrastive(d_f, weights, self.delta, self.reduction)
            contrastive_g = _contrastive(d_g, weights, self.delta, self.reduction)
            contrastive = (contrastive_f + contrastive_g) / 2
            if not self.distill:
                return STMLLosses(contrastive, contrastive, torch.zeros_like(contrastive))
            distillation = _distillation(d_f, d_g.detach(), self.include_self)
            return STMLLosses(contrastive + distillation, contrastive, distillation)


def _contrastive(d: Tensor, weights: Tensor, delta: float, reduction: Reduction) -> Tensor:
    n = len(d)
    # The pairs i = i are left out: d_ii = 0 does so for the pull, the zeroed diagonal for the push.
    push = (1 - weights).fill_diagonal_(0)
    total = (weights * d.square() + push * (delta - d).relu().square()).sum()
    return total / (n * (n - 1) if reduction == "pairs" else n)


def _distillation(d_f: Tensor, d_g: Tensor, include_self: bool) -> Tensor:
    if not include_self:
        diagonal = torch.eye(len(d_f), dtype=torch.bool, device=d_f.device)
        # So large that the softmax gives it no weight, but finite so that 0 · log stays 0.
        d_f, d_g = d_f.masked_fill(diagonal, 1e4), d_g.masked_fill(diagonal, 1e4)
    return F.kl_div((-d_f).log_softmax(1), (-d_g).log_softmax(1), log_target=True, reduction="batchmean")
