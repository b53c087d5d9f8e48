"""Gradients of the losses: right, finite where rows coincide, and only where they belong."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from selftaught.method import STMLLoss, contextualized_similarity, distillation_loss, relaxed_contrastive_loss
from selftaught.method.losses import Reduction

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def draw(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    values = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(dtype).requires_grad_()


@pytest.mark.parametrize("delta", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("reduction", ["pairs", "samples"])
def test_gradient_of_the_contrastive_loss(delta: float, reduction: Reduction) -> None:
    weights = contextualized_similarity(draw(9, 4, seed=1), 4)
    torch.autograd.gradcheck(lambda f: relaxed_contrastive_loss(f, weights, delta, reduction), draw(9, 3))


@pytest.mark.parametrize("include_self", [True, False])
def test_gradient_of_the_distillation_loss(include_self: bool) -> None:
    g = draw(9, 5, seed=1).detach()
    torch.autograd.gradcheck(lambda f: distillation_loss(f, g, include_self), draw(9, 3))


def test_gradient_of_the_whole_loss_to_both_heads() -> None:
    teacher, ids = draw(10, 5, seed=2).detach(), torch.arange(5).repeat(2)
    f, g = draw(10, 3), draw(10, 4, seed=1)
    # As a function of g the distillation counts as constant, so the numerical gradient is taken without it.
    torch.autograd.gradcheck(lambda x: STMLLoss(4)(x, g.detach(), teacher, ids).total, f)
    torch.autograd.gradcheck(lambda x: STMLLoss(4, distill=False)(f.detach(), x, teacher, ids).total, g)


def test_no_gradient_reaches_g_through_the_distillation_or_the_teacher_at_all() -> None:
    f, g, teacher = draw(10, 3), draw(10, 4, seed=1), draw(10, 4, seed=2)
    distillation_loss(f, g).backward()
    assert f.grad is not None
    assert g.grad is None
    ids = torch.arange(5).repeat(2)
    with_it = torch.autograd.grad(STMLLoss(4)(f, g, teacher, ids).total, (g, teacher), allow_unused=True)
    without = torch.autograd.grad(STMLLoss(4, distill=False)(f, g, teacher, ids).total, g)
    assert with_it[1] is None
    torch.testing.assert_close(with_it[0], without[0])


COINCIDENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "two rows equal": lambda z: torch.cat([z[:1], z[:-1]]),
    "pairs of equal rows": lambda z: z[: len(z) // 2].repeat(2, 1),
    "all rows equal": lambda z: z[:1].expand(len(z), -1).clone(),
    "all rows zero": torch.zeros_like,
    "rows a rounding apart": lambda z: z[:1] * (1 + torch.finfo(z.dtype).eps * torch.arange(len(z)).to(z)[:, None]),
    "equal rows far from the origin": lambda z: 1000 + z[: len(z) // 2].repeat(2, 1),
    "one row far away": lambda z: torch.cat([z[:1] * 1e4, z[1:2].expand(len(z) - 1, -1)]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("official", [True, False], ids=["official", "paper"])
@pytest.mark.parametrize("coincide", COINCIDENCES.values(), ids=COINCIDENCES.keys())
def test_loss_and_gradient_are_finite_where_rows_coincide(
    dtype: torch.dtype, official: bool, coincide: Callable[[Tensor], Tensor]
) -> None:
    f, g, teacher = (
        coincide(draw(12, d, seed, dtype).detach()).requires_grad_() for seed, d in enumerate((64, 300, 300))
    )
    loss = STMLLoss(5) if official else STMLLoss(5, reduction="samples", include_self=False, group_views=False)
    losses = loss(f, g, teacher, torch.tensor([0, 1, 2, 0, 4, 5]).repeat(2))
    assert all(part.isfinite() for part in losses)
    losses.total.backward()
    for z in (f, g):
        assert z.grad is not None
        assert z.grad.dtype == dtype
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("d", [2, 64, 512, 2048])
def test_equal_rows_do_not_move_apart(d: int) -> None:
    z = draw(40, d, dtype=torch.float32).detach().repeat(2, 1).requires_grad_()
    relaxed_contrastive_loss(z, torch.full((80, 80), 0.3)).backward()
    assert z.grad is not None
    torch.testing.assert_close(z.grad[:40], z.grad[40:], rtol=1e-3, atol=1e-3 * z.grad.abs().max().item())


def test_gradient_sums_to_zero_over_the_batch() -> None:
    f = draw(12, 6)
    relaxed_contrastive_loss(f, torch.full((12, 12), 0.4)).backward()
    assert f.grad is not None
    torch.testing.assert_close(f.grad.sum(0), torch.zeros(6, dtype=torch.float64), rtol=0, atol=1e-12)
