"""Eqs. 1–3 against plain loops, and the values of the authors' code."""

from typing import Any

import naive
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from selftaught.method import STMLLoss, contextualized_similarity, distillation_loss, relaxed_contrastive_loss

DTYPES = [torch.float64, torch.float32, torch.bfloat16]
SEMANTICS: list[naive.Semantics] = ["official", "paper"]
Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def small_batch(dtype: torch.dtype = torch.float64, seed: int = 0) -> Batch:
    """Two views of ten images, one of them drawn twice: f, g, teacher, ids."""
    torch.manual_seed(seed)
    f, g, teacher = (torch.randn(20, d, dtype=torch.float64).to(dtype) for d in (5, 7, 7))
    return f, g, teacher, torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 3]).repeat(2)


def stml_loss(semantics: naive.Semantics, k: int = 6, sigma: float = 3.0, delta: float = 1.0) -> STMLLoss:
    if semantics == "official":
        return STMLLoss(k, sigma, delta)
    return STMLLoss(k, sigma, delta, reduction="samples", include_self=False, group_views=False)


def assert_equals_loops(found: Tensor, expected: float, dtype: torch.dtype) -> None:
    full = torch.promote_types(dtype, torch.float32)
    assert found.dtype == full
    assert found.item() == pytest.approx(expected, rel=1e-12 if full == torch.float64 else 1e-5, abs=1e-7)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("semantics", SEMANTICS)
def test_relaxed_contrastive_loss_equals_loops(dtype: torch.dtype, semantics: naive.Semantics) -> None:
    f, _, teacher, ids = small_batch(dtype)
    weights = contextualized_similarity(teacher, 6, 3.0, ids)
    found = relaxed_contrastive_loss(f, weights, 0.9, "pairs" if semantics == "official" else "samples")
    assert_equals_loops(found, naive.contrastive(naive.matrix(f), naive.matrix(weights), 0.9, semantics), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("semantics", SEMANTICS)
def test_distillation_loss_equals_loops(dtype: torch.dtype, semantics: naive.Semantics) -> None:
    f, g, _, _ = small_batch(dtype)
    found = distillation_loss(f, g, include_self=semantics == "official")
    assert_equals_loops(found, naive.distillation(naive.matrix(f), naive.matrix(g), semantics), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("semantics", SEMANTICS)
def test_stml_loss_equals_loops(dtype: torch.dtype, semantics: naive.Semantics) -> None:
    f, g, teacher, ids = small_batch(dtype)
    losses = stml_loss(semantics, delta=0.9)(f, g, teacher, ids)
    matrices = naive.matrix(f), naive.matrix(g), naive.matrix(teacher)
    assert_equals_loops(losses.total, naive.stml(*matrices, ids.tolist(), 6, 3.0, 0.9, semantics), dtype)
    assert_equals_loops(losses.distillation, naive.distillation(*matrices[:2], semantics), dtype)
    torch.testing.assert_close(losses.total, losses.contrastive + losses.distillation)


def test_loss_keeps_its_precision_far_from_the_origin() -> None:
    f, g, teacher, ids = small_batch(torch.float32)
    f, g = f + 1000, g - 1000
    matrices = naive.matrix(f), naive.matrix(g), naive.matrix(teacher)
    expected = naive.stml(*matrices, ids.tolist(), 6, 3.0, 1.0, "official")
    assert STMLLoss(6)(f, g, teacher, ids).total.item() == pytest.approx(expected, rel=1e-5)


def test_ablations_leave_out_what_they_name() -> None:
    f, g, teacher, ids = small_batch()
    full = STMLLoss(6)(f, g, teacher, ids)
    without = STMLLoss(6, distill=False)(f, g, teacher, ids)
    assert without.total == without.contrastive == full.contrastive
    assert without.distillation == 0
    halves = [STMLLoss(6, similarity=s).weights(teacher, ids) for s in ("pairwise", "contextual")]
    torch.testing.assert_close((halves[0] + halves[1]) / 2, STMLLoss(6).weights(teacher, ids))
    torch.testing.assert_close(STMLLoss(6).weights(teacher, ids), contextualized_similarity(teacher, 6, 3.0, ids))


# seed, d_f, k, δ, then what the authors' code gives in float64: total, contrastive, KL, norms of the gradients.
KNOWN = [
    (0, 512, 10, 1.0, 0.2852384184792, 0.2847232136200, 0.0005152048593, 4.318387692e-05, 1.843448914e-05),
    (1, 128, 4, 0.9, 0.2711076696755, 0.2694080336493, 0.0016996360261, 1.273461356e-04, 8.266784760e-06),
]


def known_batch(seed: int, d_f: int) -> Batch:
    torch.manual_seed(seed)
    f, g, teacher = (torch.randn(240, d, dtype=torch.float64) for d in (d_f, 1024, 1024))
    centers = torch.randn(24, 1024, dtype=torch.float64)
    teacher = 0.5 * teacher + centers[torch.arange(120) % 24].repeat(2, 1)
    return f, g, teacher, torch.arange(120).repeat(2)


@pytest.mark.parametrize(("dtype", "atol", "rtol"), [(torch.float64, 1e-9, 1e-6), (torch.float32, 1e-6, 1e-3)])
@pytest.mark.parametrize(("seed", "d_f", "k", "delta", "total", "contrastive", "kl", "norm_f", "norm_g"), KNOWN)
def test_values_and_gradients_of_the_authors_code(
    dtype: torch.dtype,
    atol: float,
    rtol: float,
    seed: int,
    d_f: int,
    k: int,
    delta: float,
    total: float,
    contrastive: float,
    kl: float,
    norm_f: float,
    norm_g: float,
) -> None:
    f, g, teacher, ids = known_batch(seed, d_f)
    f, g, teacher = f.to(dtype).requires_grad_(), g.to(dtype).requires_grad_(), teacher.to(dtype)
    losses = STMLLoss(k, 3.0, delta)(f, g, teacher, ids)
    found = [losses.total.item(), losses.contrastive.item(), losses.distillation.item()]
    assert found == pytest.approx([total, contrastive, kl], rel=0, abs=atol)
    gradients = torch.autograd.grad(losses.total, (f, g))
    assert [gradient.norm().item() for gradient in gradients] == pytest.approx([norm_f, norm_g], rel=rtol)


@given(st.integers(0, 2**16), st.floats(-6, 6), st.floats(-6, 6), st.sampled_from(SEMANTICS))
@settings(max_examples=30, deadline=None)
def test_loss_does_not_change_when_an_embedding_is_rescaled(
    seed: int, power_f: float, power_g: float, semantics: naive.Semantics
) -> None:
    f, g, teacher, ids = small_batch(seed=seed)
    loss = stml_loss(semantics)
    rescaled = loss(f * 10**power_f, g * 10**power_g, teacher, ids)
    torch.testing.assert_close(rescaled.total, loss(f, g, teacher, ids).total, rtol=1e-10, atol=0)


@given(st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_loss_is_not_negative_and_distillation_from_oneself_is_zero(seed: int) -> None:
    f, g, teacher, ids = small_batch(seed=seed)
    losses = STMLLoss(6)(f, g, teacher, ids)
    assert losses.contrastive >= 0
    assert losses.distillation >= 0
    assert distillation_loss(f, 2 * f).abs() < 1e-12


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_embedding_shows_in_the_loss(bad: float) -> None:
    f, g, teacher, ids = small_batch()
    f[3, 2] = bad
    assert not STMLLoss(6)(f, g, teacher, ids).total.isfinite()


def test_an_unknown_reduction_or_similarity_is_refused() -> None:
    wrong: Any = "mean"
    with pytest.raises(ValueError, match="unknown reduction 'mean': give one of pairs, samples"):
        relaxed_contrastive_loss(torch.randn(4, 2), torch.eye(4), reduction=wrong)
    for options in ({"reduction": wrong}, {"similarity": wrong}):
        with pytest.raises(ValueError, match=r"unknown .*'mean'"):
            STMLLoss(**options)


def test_without_relaxation_the_labels_are_the_soft_ones_cut_at_one_half() -> None:
    teacher, ids = torch.randn(12, 6), torch.arange(6).repeat(2)
    soft = STMLLoss(k=4).weights(teacher, ids)
    hard = STMLLoss(k=4, relaxed=False).weights(teacher, ids)
    assert 0 < soft[soft < 0.5].max() < 0.5 <= soft[soft >= 0.5].min() < 1
    assert torch.equal(hard, (soft >= 0.5).float())
